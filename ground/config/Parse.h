// Converts text (a TOML file, --set overrides) to assignments of known keys.
#pragma once

#include "ground/config/Diagnostics.h"
#include "ground/config/Values.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lmc::config {

// A key and its value as written. The value's type and range are not checked yet.
struct Assignment {
  const Key *key = nullptr;
  Value value;
  Location location; // location of the value
};

struct ParsedFile {
  bool valid = false; // false if the text has a syntax error of TOML
  std::vector<Assignment> assignments;
  std::map<std::string, Location> sections; // headers of sections and of tables of lists
  // The known keys that misspelt names probably mean. These keys are not reported as missing.
  std::set<std::string> misspelt;
};

// Parses the text of the file `path`, up to the first syntax error. Adds the keys of each table of
// a list to `keys`. An error about an unknown section or key suggests the nearest known name.
ParsedFile parseToml(const std::string &text, const std::string &path, KeyTable &keys,
                     Diagnostics &diagnostics);

// Returns `text` without spaces and tabs at its ends.
std::string trimmed(const std::string &text);

// Parses texts "section.key=VALUE" in order; VALUE is a TOML value or a bare word. The key may
// belong to a table of a list, if the file has this table: "data.source.web.weight".
std::vector<Assignment> parseOverrides(const std::vector<std::string> &overrides,
                                       const KeyTable &keys, Diagnostics &diagnostics);

} // namespace lmc::config
