#include "ground/config/Diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <tuple>

namespace lmc::config {

namespace {

// Escapes line breaks and control characters, so that an error is one line.
std::string oneLine(const std::string &text) {
  std::string line;
  for (const unsigned char c : text) {
    if (c == '\n')
      line += "\\n";
    else if (c < 0x20 || c == 0x7f)
      line += fmt::format("\\x{:02x}", c);
    else
      line += static_cast<char>(c);
  }
  return line;
}

// Returns "FILE:LINE:COLUMN: ", or "FILE: " for a whole file.
std::string placeOf(const Location &location) {
  std::string place = oneLine(location.file);
  if (location.line)
    place += fmt::format(":{}:{}", location.line, location.column);
  return place + ": ";
}

} // namespace

Result<std::string> readFile(const std::string &path) {
  auto problem = [] { return userError("cannot be read: {}", std::strerror(errno)); };
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "rb"),
                                                        std::fclose);
  if (!file)
    return problem();
  std::string text;
  char buffer[65536];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, file.get()))
    text.append(buffer, count);
  if (std::ferror(file.get())) // for example, a folder can be opened but not read
    return problem();
  return text;
}

void Diagnostics::warning(const Location &location, const std::string &message) {
  warned.push_back(placeOf(location) + oneLine(message));
}

void Diagnostics::settingWarning(const Location &location, const std::string &message) {
  warnedOfSettings.push_back(placeOf(location) + oneLine(message));
}

std::string Diagnostics::firstMessage() const {
  return entries.empty() ? "" : oneLine(entries.front().message);
}

std::string Diagnostics::text() const {
  auto firstOf = [&](const Entry &entry) {
    const auto fileOf = [](const Entry &each) -> const std::string & { return each.location.file; };
    return std::ranges::find(entries, entry.location.file, fileOf) - entries.begin();
  };
  std::vector<std::pair<std::tuple<long, unsigned, unsigned>, const Entry *>> order;
  for (const Entry &entry : entries)
    order.push_back({{firstOf(entry), entry.location.line, entry.location.column}, &entry});
  std::ranges::stable_sort(order, {}, [](const auto &each) { return each.first; });

  std::string text;
  for (const auto &[rank, entry] : order)
    text += fmt::format("{}error: {}\n", placeOf(entry->location), oneLine(entry->message));
  return text;
}

} // namespace lmc::config
