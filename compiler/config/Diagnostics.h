// Mistakes found in a configuration, gathered so that all are reported at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lmc::config {

// Where something was written. `file` is a path, or "--set" for an override.
struct Location {
  std::string file;
  unsigned line = 0, column = 0; // from 1; 0: the file as a whole
};

class Diagnostics {
public:
  void error(Location location, std::string message);
  bool empty() const { return entries.empty(); }
  size_t count() const { return entries.size(); }
  // One line each; those of a file in the order of its text, files in the order
  // in which they first went wrong.
  std::string text() const;

private:
  struct Entry {
    Location location;
    std::string message;
  };
  std::vector<Entry> entries;
};

} // namespace lmc::config
