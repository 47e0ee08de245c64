// The table of keys: everything that is known about each key of the TOML.
#pragma once

#include "compiler/config/Config.h"

#include <functional>
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
  std::function<Field(Config &)> field;
  const char *unit = "";                              // "bytes" also takes text such as "76GiB"
  double minimum = -kUnbounded, maximum = kUnbounded; // inclusive; numbers only
  std::vector<Choice> choices = {};
  bool required = false;
  // What an absent key means where that is more than the field's initial value.
  const char *defaultText = "";
  bool runTime = false; // `lmc-run --set` may change it
  std::string doc;
  ModelFamilies families = {}; // that have the key; empty: all. The table of keys fills it in.

  std::string path() const { return std::string(section) + "." + name; }
  bool isSize() const { return std::string_view(unit) == "bytes"; }
  bool isOf(const ModelFamily &family) const;
};

struct Section {
  const char *name;
  const char *doc;
};

// In the order of the reference page.
const std::vector<Section> &sections();
bool isSection(std::string_view name);

// All keys: those that every job has, and those of the families. In the order of the reference
// page; a section's keys stand together.
class KeyTable {
public:
  explicit KeyTable(const ModelFamilies &families);

  std::vector<Key>::const_iterator begin() const { return keys.begin(); }
  std::vector<Key>::const_iterator end() const { return keys.end(); }
  // nullptr if there is none; finds aliases too.
  const Key *find(std::string_view section, std::string_view name) const;

  const ModelFamilies families;

private:
  std::vector<Key> keys;
};

// The field of a key that a family has of its own: an element of ModelConfig::familyValues.
std::function<Field(Config &)>
familyField(const char *name, std::variant<bool, int64_t, double, std::string> initial);

// "a, b or c", with `word` for "or".
std::string listed(const std::vector<std::string> &names, const char *word);

// "an integer", "one of a, b, c", ...
std::string typeText(const Key &key);
// "from 1 to 8", "at least 1"; empty for what has no range.
std::string rangeText(const Key &key);
// The spellings to show, without aliases.
std::vector<std::string> choiceNames(const Key &key);

} // namespace lmc::config
