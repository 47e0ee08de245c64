// Reads a whole text file.
#pragma once

#include "ground/support/Result.h"

#include <string>

namespace lmc::config {

// Returns the text of a file or pipe. Unlike readTextFile of ground/support, it accepts a pipe, for
// `lmc compile <(...)`, and its Error does not name the path, because diagnostics begin with the
// path: "cannot be read: No such file or directory".
Result<std::string> readFile(const std::string &path);

} // namespace lmc::config
