// Collects the mistakes of a configuration, so that all are reported together.
#pragma once

#include "ground/support/Result.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lmc::config {

inline constexpr const char *kOverrides = "--set";

// A place in a text. `file` is a path, or kOverrides.
struct Location {
  std::string file;
  unsigned line = 0, column = 0; // counted from 1; 0: the whole file
};

// Returns the text of a file or pipe, such as that of `lmc compile <(...)`. The Error is "cannot be
// read: REASON". It has no path, because diagnostics begin with the path.
Result<std::string> readFile(const std::string &path);

class Diagnostics {
public:
  // Reports an error whose message is formatted as by fmt::format.
  template <typename... Args>
  void error(Location location, fmt::format_string<Args...> text, Args &&...args) {
    entries.push_back({std::move(location), fmt::format(text, std::forward<Args>(args)...)});
  }
  void warning(const Location &location, const std::string &message);
  // Adds a warning that the plan does not store: lmc-run finds it itself (Config::settingWarnings).
  void settingWarning(const Location &location, const std::string &message);
  const std::vector<std::string> &settingWarnings() const { return warnedOfSettings; }
  // Returns the warnings as lines "FILE: message", in the order in which they were reported.
  const std::vector<std::string> &warnings() const { return warned; }
  bool empty() const { return entries.empty(); }
  size_t count() const { return entries.size(); }
  // Returns the first message without its location, as one line; "" if there is none.
  std::string firstMessage() const;
  // Returns one message per line, sorted by file (in the order of first reports), then location.
  std::string text() const;

private:
  struct Entry {
    Location location;
    std::string message;
  };
  std::vector<Entry> entries;
  std::vector<std::string> warned, warnedOfSettings;
};

} // namespace lmc::config
