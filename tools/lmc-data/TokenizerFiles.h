// The files of a tokenizer, which go with the token files that it makes.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/write/Publish.h"

#include <optional>
#include <string>
#include <utility>

namespace lmc {

// Returns what identifies a tokenizer: the XXH64, seed 0, of its file.
Result<uint64_t> tokenizerHash(const std::string &file);

// A copy of a tokenizer's files for a token file, which has them in the folder TOKENS.tokenizer.
class TokenizerCopy {
public:
  // Copies the tokenizer `file`, and what lies beside it and belongs to it, for the token file
  // `tokens`. No other process may do so at the same time.
  static Result<TokenizerCopy> make(const std::string &file, const std::string &tokens);
  TokenizerCopy(TokenizerCopy &&other) noexcept : tokens(std::exchange(other.tokens, "")) {}
  // Removes the copy unless it was released.
  ~TokenizerCopy();
  // Returns what gives the copy its name, which is then the caller's to do.
  Rename release();

private:
  explicit TokenizerCopy(std::string tokens) : tokens(std::move(tokens)) {}
  std::string tokens; // "": there is nothing to remove
};
// Returns what removes the folder TOKENS.tokenizer.
Rename withoutTokenizer(const std::string &tokens);

} // namespace lmc
