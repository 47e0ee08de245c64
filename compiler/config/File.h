// Reads a whole text file.
#pragma once

#include <string>
#include <variant>

namespace lmc::config {

struct FileProblem {
  std::string message; // "cannot be read: No such file or directory"
};

std::variant<std::string, FileProblem> readFile(const std::string &path);

} // namespace lmc::config
