#include "ground/config/File.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lmc::config {

Result<std::string> readFile(const std::string &path) {
  auto problem = [] { return Error{fmt::format("cannot be read: {}", std::strerror(errno))}; };
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "rb"),
                                                        std::fclose);
  if (!file)
    return problem();
  std::string text;
  char buffer[65536];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, file.get()))
    text.append(buffer, count);
  if (std::ferror(file.get())) // such as a folder, which can be opened but not read
    return problem();
  return text;
}

} // namespace lmc::config
