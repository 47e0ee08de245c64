// Converts text (a TOML file, --set overrides) to assignments of known keys.
#pragma once

#include "ground/config/Diagnostics.h"
#include "ground/config/Values.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lmc::config {

// A key and the value written for it. The value's type and range are not checked yet.
struct Assignment {
  const Key *key = nullptr;
  Value value;
  Location location; // location of the value
};

struct ParsedFile {
  bool valid = false; // false if the text has a syntax error of TOML
  std::vector<Assignment> assignments;
  std::map<std::string, Location> sections; // headers of sections and of tables of lists
  // Paths of the known keys that misspelt names probably stand for. Such a key is reported as
  // misspelt, and not a second time as missing.
  std::set<std::string> misspelt;
};

// Parses the text of the file `path`. Unknown sections and keys are errors that suggest the nearest
// known name. Parsing stops at the first syntax error. The keys of each table of a list are added
// to `keys`; a table without a name, or with that of another, is an error.
ParsedFile parseToml(const std::string &text, const std::string &path, KeyTable &keys,
                     Diagnostics &diagnostics);

// Returns `text` without spaces and tabs at its ends.
std::string trimmed(const std::string &text);

// Parses texts of the form "section.key=VALUE" in order; VALUE is a TOML value or a bare word. A
// key of a table of a list is "data.source.web.weight"; the file has the table.
std::vector<Assignment> parseOverrides(const std::vector<std::string> &overrides,
                                       const KeyTable &keys, Diagnostics &diagnostics);

} // namespace lmc::config
