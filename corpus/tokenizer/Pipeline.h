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
  Normalizer normalizer;     // null: none
  PreTokenizer preTokenizer; // null: none
  std::unique_ptr<Model> model;
  std::vector<uint32_t> before, after; // ids that the post-processor adds before and after a text
  Decoder decoder;                     // null: decoding joins the pieces with spaces
};

// Error, whose message is one clause: an added token is empty, or is equal to another added token.
Result<std::shared_ptr<const Tokenizer>> makePipeline(PipelineParts parts);

// Reads a tokenizer.json. A key that the program does not know is an error.
Result<std::shared_ptr<const Tokenizer>> readTokenizerJson(const std::string &path);

Result<std::shared_ptr<const Tokenizer>> readSentencePieceModel(const std::string &path);

} // namespace lmc
