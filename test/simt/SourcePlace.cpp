#include "test/simt/SourcePlace.h"

#include <fmt/format.h>

#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <sstream>
#include <vector>

namespace lmc::simt {
namespace {

std::string outputOf(const std::string &command) {
  std::string output;
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe)
    return output;
  char buffer[512];
  while (size_t read = fread(buffer, 1, sizeof(buffer), pipe))
    output.append(buffer, read);
  pclose(pipe);
  return output;
}

std::string fileName(const std::string &path) { return path.substr(path.rfind('/') + 1); }

bool isHeader(const std::string &path) {
  return path.size() > 4 && path.substr(path.size() - 4) == ".cuh";
}

} // namespace

std::string sourceLine(const std::string &file, int line) {
  std::ifstream text(file);
  std::string content;
  for (int i = 0; i < line; ++i)
    std::getline(text, content);
  const size_t from = content.find_first_not_of(' ');
  content = from == std::string::npos ? "" : content.substr(from);
  return fmt::format("{} {}: `{}`", isHeader(file) ? fileName(file) + " line" : "line", line,
                     content);
}

std::string sourcePlace(const void *instruction) {
  Dl_info object;
  if (!dladdr(instruction, &object) || !object.dli_fname)
    return "an unknown place";
  const auto offset = static_cast<const char *>(instruction) -
                      static_cast<const char *>(object.dli_fbase);
  // addr2line prints one "file:line" per level of inlining, innermost first.
  std::istringstream lines(
      outputOf(fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", object.dli_fname, offset)));
  std::vector<std::pair<std::string, int>> levels;
  for (std::string text; std::getline(lines, text);)
    if (size_t colon = text.rfind(':'); colon != std::string::npos && text[0] != '?')
      levels.push_back({text.substr(0, colon), std::atoi(text.c_str() + colon + 1)});
  if (levels.empty())
    return "an unknown place";
  std::string place = sourceLine(levels.back().first, levels.back().second);
  for (auto &[file, line] : levels) {
    const std::string name = fileName(file);
    if (!isHeader(file) || name == "platform.cuh" || name == "vector_io.cuh")
      continue;
    if (&file != &levels.back().first)
      place += fmt::format(", in {}:{}", name, line);
    break;
  }
  return place;
}

} // namespace lmc::simt
