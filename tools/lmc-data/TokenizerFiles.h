// The files of a tokenizer. `lmc-data pack` copies them to a folder beside the token file.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/write/PartialFolder.h"

#include <string>
#include <utility>

namespace lmc {

// Returns the hash that identifies a tokenizer: the XXH64, seed 0, of its file.
Result<uint64_t> tokenizerHash(const std::string &file);

// A copy of a tokenizer's files in the folder TOKENS.tokenizer of a token file TOKENS.
class TokenizerCopy {
public:
  // Copies the tokenizer's `file`, and the files beside it, for the token file `tokens`. Only one
  // process at a time may do this for the same `tokens`.
  static Result<TokenizerCopy> make(const std::string &file, const std::string &tokens);
  TokenizerCopy(TokenizerCopy &&other) noexcept : tokens(std::exchange(other.tokens, "")) {}
  // Removes the copy, unless release() was called.
  ~TokenizerCopy();
  // Returns the rename that gives the copy its final name. The caller must carry it out.
  Rename release();

private:
  explicit TokenizerCopy(std::string tokens) : tokens(std::move(tokens)) {}
  std::string tokens; // "": there is nothing to remove
};
// Returns the rename that removes the folder TOKENS.tokenizer.
Rename withoutTokenizer(const std::string &tokens);

} // namespace lmc
