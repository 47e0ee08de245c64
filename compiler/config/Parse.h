// Text (a TOML file, --set overrides) to assignments of known keys.
#pragma once

#include "compiler/config/Diagnostics.h"
#include "compiler/config/Values.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lmc::config {

// One key with what was written for it; types and ranges are not checked yet.
struct Assignment {
  const Key *key = nullptr;
  Value value;
  Location location; // of the value
};

struct ParsedFile {
  bool valid = false; // is TOML
  std::vector<Assignment> assignments;
  std::map<std::string, Location> sections; // headers that the file has
  // Paths of the keys that unknown names probably mean: reported as misspelt, so
  // not as missing too.
  std::set<std::string> misspelt;
};

// `path` names the file in errors. Unknown sections and keys are errors with the
// nearest known name; parsing itself stops at the first syntax error.
ParsedFile parseToml(const std::string &text, const std::string &path, const KeyTable &keys,
                     Diagnostics &diagnostics);

// "section.key=TOML value or bare word", in order.
std::vector<Assignment> parseOverrides(const std::vector<std::string> &overrides,
                                       const KeyTable &keys, Diagnostics &diagnostics);

} // namespace lmc::config
