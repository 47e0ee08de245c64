// Trains a byte-level BPE tokenizer on a text.
#pragma once

#include "corpus/tokenizer/PreTokenizer.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lmc {

class BpeTrainer {
public:
  BpeTrainer();
  // Counts the words of a document, valid UTF-8. Words are cut as Llama 3 cuts them.
  Result<void> add(std::string_view document);
  // Error: the token is empty, not UTF-8, or the character that stands for a byte.
  static Result<void> checkEndOfText(const std::string &endOfText);

  struct Trained {
    std::string json;    // the text of a tokenizer.json
    uint32_t tokens = 0; // in its vocabulary
  };
  // Makes a tokenizer of `size` tokens: first `endOfText`, a special token, then the 256 bytes,
  // then merges, the most frequent pair first. If the text is too short for as many merges, there
  // are fewer tokens. Error: `size` is below 257, there was no word, or checkEndOfText() has one.
  Result<Trained> train(uint32_t size, const std::string &endOfText) const;

private:
  std::unique_ptr<PreTokenizer> preTokenizer;
  std::unordered_map<std::string, uint64_t> words; // the words, and how often each was counted
};

} // namespace lmc
