// The tokenizer that a tokenizer.json describes.
#pragma once

#include "corpus/tokenizer/AddedTokens.h"
#include "corpus/tokenizer/Decoder.h"
#include "corpus/tokenizer/Normalizer.h"
#include "corpus/tokenizer/PreTokenizer.h"
#include "corpus/tokenizer/Tokenizer.h"

#include <memory>
#include <vector>

namespace lmc {

struct PipelineParts {
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;     // null: none
  std::unique_ptr<PreTokenizer> preTokenizer; // null: none
  std::unique_ptr<Model> model;
  std::vector<uint32_t> before, after; // ids that the post-processor puts around a text
  std::unique_ptr<Decoder> decoder;    // null: pieces with spaces between them
};

// Error: one clause, about two added tokens that look the same.
Result<std::shared_ptr<const Tokenizer>> makePipeline(PipelineParts parts);

// Reads a tokenizer.json. Every key of it is known, or refused.
Result<std::shared_ptr<const Tokenizer>> readTokenizerJson(const std::string &path);

// Reads a .model of SentencePiece.
Result<std::shared_ptr<const Tokenizer>> readSentencePieceModel(const std::string &path);

} // namespace lmc
