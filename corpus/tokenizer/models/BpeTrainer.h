// Trains a byte-level BPE tokenizer on a text.
#pragma once

#include "corpus/tokenizer/PreTokenizer.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lmc {

class BpeTrainer {
public:
  BpeTrainer();
  // Cuts a document (valid UTF-8) into words as Llama 3 does, and counts the words.
  Result<void> add(std::string_view document);
  // Error: `endOfText` is empty, is not UTF-8, or is one of the characters that stand for bytes.
  static Result<void> checkEndOfText(const std::string &endOfText);

  struct Trained {
    std::string json;    // the text of a tokenizer.json
    uint32_t tokens = 0; // in its vocabulary
  };
  // Makes a tokenizer of at most `size` tokens: the special token `endOfText`, the 256 bytes, and
  // the results of merges, the most frequent pair first. Error: `size` is below 257, the documents
  // have no word, or checkEndOfText() fails.
  Result<Trained> train(uint32_t size, const std::string &endOfText) const;

private:
  PreTokenizer preTokenizer;
  std::unordered_map<std::string, uint64_t> words; // the words, and how often each was counted
};

} // namespace lmc
