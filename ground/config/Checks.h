// The rules between several keys: derives defaults from other keys, and checks that keys agree.
#pragma once

#include "ground/config/Diagnostics.h"
#include "ground/config/Keys.h"

#include <fmt/format.h>

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lmc::config {

// Records which keys were set, and where. Checks skip keys about which an error was reported.
struct Provenance {
  std::string file;                         // path of the TOML file
  std::map<std::string, Location> sections; // by name; the location of the section's header
  std::map<std::string, Location> keys; // by path ("model.vocab_size"); the last place that set it
  std::set<std::string> broken;         // paths of keys with a reported error

  bool given(const std::string &path) const { return keys.count(path); }
  // Returns the location of the key, else of its section, else of the file.
  Location of(const std::string &path) const;
};

struct CheckedJob {
  const KeyTable &keys;
  const Provenance &provenance;
  const Config &config;
  const CheckDevice &checkDevice;
  Diagnostics &diagnostics;

  // Returns true if none of the keys `paths` has a reported error.
  bool sound(std::initializer_list<const char *> paths) const;

  template <typename... Args>
  void error(const std::string &path, fmt::format_string<Args...> message, Args &&...args) const {
    diagnostics.error(provenance.of(path), message, std::forward<Args>(args)...);
  }
};

// Reports missing required keys, and adds them to `broken`. `family` is null if it is unknown.
void checkRequired(const KeyTable &keys, const ModelFamily *family, Provenance &provenance,
                   Diagnostics &diagnostics);

// Sets the keys that were not given and whose defaults derive from other keys.
void deriveDefaults(const KeyTable &keys, const Provenance &provenance, Config &config);

// Returns the job's settings in the form that the plan stores.
std::vector<Setting> settingsOf(const KeyTable &keys, const Provenance &provenance, Config config);

// Returns the divisors of n that are nearest to `value`, for errors: "4 or 8".
std::string nearestDivisors(int64_t n, int64_t value);

// Reports keys that contradict each other. Must run after deriveDefaults.
void checkTogether(const CheckedJob &job);

// Reports patterns of [[optimizer.group]] that match no parameter, and parameters in two groups.
void checkPatterns(const CheckedJob &job, const std::vector<std::string> &parameters);

} // namespace lmc::config
