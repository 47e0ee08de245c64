// Finds the tokenizer of a run's training data, which is copied into exports of the run's weights.
#pragma once

#include "ground/support/Result.h"
#include "runtime/checkpoint/HuggingFace.h"
#include "runtime/checkpoint/RecordedRun.h"

#include <optional>
#include <string>

namespace lmc {

// Returns the folder in which lmc-data puts the tokenizer of the token file `tokens`.
std::string tokenizerFolder(const std::string &tokens);
// Returns tokenizerFolder(tokens), if this folder exists.
std::optional<std::string> tokenizerOf(const std::string &tokens);

// The names of files from which a tokenizer can be read, the best first.
inline constexpr const char *kTokenizerNames[] = {"tokenizer.json", "tokenizer.model"};
// Returns the file to open, given a tokenizer's file or folder. Error: there is none.
Result<std::string> tokenizerFile(const std::string &path);

// Adds the files of a tokenizer to `options`, and the ids that begin and end a document unless they
// are set. `tokenizer` is a file or folder; "": tokenizerFolder() of the first token file.
Result<void> addTokenizer(const RunIdentity &run, const std::string &tokenizer,
                          ExportOptions &options);

} // namespace lmc
