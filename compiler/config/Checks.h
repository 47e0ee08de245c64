// What follows from several keys together: derived defaults and cross checks.
#pragma once

#include "compiler/config/Diagnostics.h"
#include "compiler/config/Keys.h"

#include <fmt/format.h>

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lmc::config {

// Which keys were written, and where; a check speaks only of sound keys.
struct Provenance {
  std::string file;                         // the TOML file
  std::map<std::string, Location> sections; // headers
  std::map<std::string, Location> keys;     // by path; the last that set it
  std::set<std::string> broken;             // by path; an error was reported

  bool given(const std::string &path) const { return keys.count(path); }
  // Of the key; of its section if it was not written; else of the file's start.
  Location of(const std::string &path) const;
};

// A job under check.
struct CheckedJob {
  const KeyTable &keys;
  const Provenance &provenance;
  const Config &config;
  const DeviceProblem &deviceProblem;
  Diagnostics &diagnostics;

  // Whether no error was reported at any of these keys.
  bool sound(std::initializer_list<const char *> paths) const;

  template <typename... Args>
  void error(const std::string &path, fmt::format_string<Args...> message, Args &&...args) const {
    diagnostics.error(provenance.of(path), fmt::format(message, std::forward<Args>(args)...));
  }
};

// Reports required keys that are missing (and marks them broken).
void checkRequired(const KeyTable &keys, Provenance &provenance, Diagnostics &diagnostics);

// Fills what is derived from other keys and was not given.
void deriveDefaults(const Provenance &provenance, Config &config);

// Reports what does not belong together. Runs after deriveDefaults.
void checkTogether(const CheckedJob &job);

} // namespace lmc::config
