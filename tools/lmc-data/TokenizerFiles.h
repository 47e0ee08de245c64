// The files of a tokenizer, which go with the token files that it makes.
#pragma once

#include "runtime/support/Result.h"

#include <optional>
#include <string>

namespace lmc {

// Returns the file to open for a tokenizer's file or folder. Error: there is none.
Result<std::string> tokenizerFile(const std::string &path);

// Copies the tokenizer `file`, and what lies beside it and belongs to it, to the folder
// TOKENS.tokenizer of the token file `tokens`.
Result<void> copyTokenizer(const std::string &file, const std::string &tokens);
// Removes that folder, if there is one.
Result<void> dropTokenizer(const std::string &tokens);
// Returns that folder, if there is one.
std::optional<std::string> tokenizerOf(const std::string &tokens);

} // namespace lmc
