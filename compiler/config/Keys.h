// The table of keys: everything that is known about each key of the TOML.
#pragma once

#include "compiler/config/Config.h"

#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace lmc::config {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Where a key's value lives; the type of the field is the type of the key.
using Field =
    std::variant<int64_t *, uint64_t *, double *, bool *, std::string *, std::vector<std::string> *,
                 DataType *, RecomputeMode *, ShardingStrategy *, RopeScalingType *>;

// A word that a key accepts. For enums and integers `value` is what it stands
// for; the first choice of a value is its canonical spelling, others are aliases.
struct Choice {
  const char *name = "";
  int value = 0;
};

struct Key {
  const char *section = "";
  const char *name = "";
  const char *alias = ""; // another name that means the same
  Field (*field)(Config &) = nullptr;
  const char *unit = "";                              // "bytes" also takes text such as "76GiB"
  double minimum = -kUnbounded, maximum = kUnbounded; // inclusive; numbers only
  std::vector<Choice> choices = {};
  bool required = false;
  // What an absent key means where that is more than the field's initial value.
  const char *defaultText = "";
  bool runTime = false; // `lmc-run --set` may change it
  const char *doc = "";

  std::string path() const { return std::string(section) + "." + name; }
  bool isSize() const { return std::string_view(unit) == "bytes"; }
};

struct Section {
  const char *name;
  const char *doc;
};

// In the order of the reference page; a section's keys stand together.
const std::vector<Section> &sections();
const std::vector<Key> &keys();

bool isSection(std::string_view name);
// nullptr if there is none; finds aliases too.
const Key *findKey(std::string_view section, std::string_view name);

// "an integer", "one of a, b, c", ...
std::string typeText(const Key &key);
// "from 1 to 8", "at least 1"; empty for what has no range.
std::string rangeText(const Key &key);
// The spellings to show, without aliases.
std::vector<std::string> choiceNames(const Key &key);

} // namespace lmc::config
