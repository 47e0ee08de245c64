// Makes a byte-level BPE tokenizer of a text.
#pragma once

#include "runtime/support/Result.h"
#include "runtime/tokenizer/PreTokenizer.h"

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
  // Returns the text of a tokenizer.json with `size` tokens: first `endOfText`, a special token,
  // then the 256 bytes, then merges, the most frequent pair first. The text may be too short for as
  // many merges; there are fewer tokens then. Error: `size` is below 257, or there was no word.
  Result<std::string> train(uint32_t size, const std::string &endOfText) const;

private:
  std::unique_ptr<PreTokenizer> preTokenizer;
  std::unordered_map<std::string, uint64_t> words; // bytes, and how often they came
};

} // namespace lmc
