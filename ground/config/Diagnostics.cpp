#include "ground/config/Diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace lmc::config {

namespace {

// Escapes line breaks and control characters, because an error must be one line.
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

} // namespace

void Diagnostics::error(Location location, std::string message) {
  entries.push_back({std::move(location), std::move(message)});
}

void Diagnostics::warning(const Location &location, const std::string &message) {
  warned.push_back(oneLine(location.file) + ": " + oneLine(message));
}

void Diagnostics::settingWarning(const Location &location, const std::string &message) {
  std::string place = oneLine(location.file);
  if (location.line)
    place += fmt::format(":{}:{}", location.line, location.column);
  warnedOfSettings.push_back(place + ": " + oneLine(message));
}

std::string Diagnostics::firstMessage() const {
  return entries.empty() ? "" : oneLine(entries.front().message);
}

std::string Diagnostics::text() const {
  auto firstOf = [&](const Entry &entry) {
    return std::find_if(
               entries.begin(), entries.end(),
               [&](const Entry &other) { return other.location.file == entry.location.file; }) -
           entries.begin();
  };
  std::vector<std::pair<std::tuple<long, unsigned, unsigned>, const Entry *>> order;
  for (const Entry &entry : entries)
    order.push_back({{firstOf(entry), entry.location.line, entry.location.column}, &entry});
  std::stable_sort(order.begin(), order.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });

  std::string text;
  for (const auto &[rank, entry] : order) {
    text += oneLine(entry->location.file);
    if (entry->location.line)
      text += fmt::format(":{}:{}", entry->location.line, entry->location.column);
    text += fmt::format(": error: {}\n", oneLine(entry->message));
  }
  return text;
}

} // namespace lmc::config
