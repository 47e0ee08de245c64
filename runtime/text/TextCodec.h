// Turns text into the tokens of a run, and back.
#pragma once

#include "corpus/tokenizer/Tokenizer.h"
#include "ground/support/Result.h"
#include "runtime/data/TokenFile.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

class TextCodec {
public:
  // Uses the tokenizer beside the token file `tokens`. Without a tokenizer, each token must be a
  // byte. `endOfDocument` ends a document if the file names no such id; -1: none. Error: there is
  // no tokenizer, and tokens are not bytes.
  static Result<TextCodec> open(const std::string &tokens, DataFormat format,
                                int32_t endOfDocument);

  // Returns the ids that begin a document, followed by those of `text` (valid UTF-8). Error: there
  // are no ids at all.
  Result<std::vector<int32_t>> encode(std::string_view text);
  // Returns the text of `ids` in a document that begins with the ids `before`.
  Result<std::string> decode(std::span<const int32_t> before, std::span<const int32_t> ids) const;
  // Returns the id that ends a document; -1: none.
  int32_t endOfDocument() const { return end; }

private:
  Result<std::string> textOf(std::span<const int32_t> ids) const;

  std::shared_ptr<const Tokenizer> tokenizer; // null: tokens are bytes
  std::vector<std::unique_ptr<Encoder>> encoders;
  std::vector<int32_t> first; // ids that stand before each document
  int32_t end = -1;
};

} // namespace lmc
