// Converts text (a TOML file, --set overrides) to assignments of known keys.
#pragma once

#include "compiler/config/Diagnostics.h"
#include "compiler/config/Values.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lmc::config {

// A key and the value written for it. Type and range are not checked yet.
struct Assignment {
  const Key *key = nullptr;
  Value value;
  Location location; // of the value
};

struct ParsedFile {
  bool valid = false; // the text is TOML
  std::vector<Assignment> assignments;
  std::map<std::string, Location> sections; // section headers of the file
  // Paths of the keys that unknown names were probably meant to be. They are reported as misspelt
  // and not again as missing.
  std::set<std::string> misspelt;
};

// Parses the text of the file `path`. Unknown sections and keys are errors that suggest the nearest
// known name. Parsing stops at the first syntax error.
ParsedFile parseToml(const std::string &text, const std::string &path, const KeyTable &keys,
                     Diagnostics &diagnostics);

// Parses texts of the form "section.key=TOML value or bare word", in order.
std::vector<Assignment> parseOverrides(const std::vector<std::string> &overrides,
                                       const KeyTable &keys, Diagnostics &diagnostics);

} // namespace lmc::config
