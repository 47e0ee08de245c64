// The table of keys: all facts about each key of the TOML file. ground/config/keys has its rows.
#pragma once

#include "ground/config/Config.h"

#include <functional>
#include <limits>
#include <list>
#include <string>
#include <variant>
#include <vector>

namespace lmc::config {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// The field of Config with a key's value. The field has the type of the key.
using Field = std::variant<int64_t *, uint64_t *, double *, bool *, std::string *,
                           std::vector<std::string> *, std::vector<int64_t> *, DataType *,
                           RecomputeMode *, ShardingStrategy *, RopeScalingType *>;

// A word that a key accepts. In a key of an enum or integer type, it stands for `value`. The first
// of several words with the same value is the canonical spelling.
struct Choice {
  const char *name = "";
  int value = 0;
};

// A default that is computed: the value of the key `key`, divided by `divisor`.
struct DerivedDefault {
  std::string key; // "training.train_iters"; "": the default is fixed
  double divisor = 1;
};

struct Key {
  std::string section = {};
  std::string name = {};
  const char *alias = ""; // another accepted name of the key
  std::function<Field(Config &)> field;
  const char *unit = "";                              // "bytes" also takes text such as "76GiB"
  // The range of a number, or of each number in a list. Both bounds are allowed values.
  double minimum = -kUnbounded, maximum = kUnbounded;
  std::vector<Choice> choices = {};
  bool required = false;
  // The default as text. If it is "", the default is the initial value of the field.
  const char *defaultText = "";
  DerivedDefault derived = {};
  bool runTime = false;  // `lmc-run --set` may change the key
  // `lmc-run --set` may change the key only if the job sets it: if unset, the plan ignores it.
  bool runTimeIfGiven = false;
  bool identity = false; // another value trains another model: a restart must declare the change
  std::string doc = {};
  // The families that have the key. If empty, all families have it. KeyTable sets this field.
  ModelFamilies families = {};

  std::string path() const { return section + "." + name; }
  bool isSize() const { return std::string_view(unit) == "bytes"; }
  bool isOf(const ModelFamily &family) const;
};

struct Section {
  const char *name;
  const char *doc;
  // If the section is a list of tables such as [[data.source]], keysOf("web") returns the keys of
  // its table with the name "web": the section "data.source.web". Null if the section is no list.
  std::function<std::vector<Key>(const std::string &name)> keysOf = nullptr;
};

// Returns the sections in the order of docs/config.md.
const std::vector<Section> &sections();
const Section *findSection(std::string_view name);
// Returns the list "data.source" for its table "data.source.web"; nullptr for other sections.
const Section *listOf(std::string_view section);
// Returns the section's header: "[data]", or "[[data.source]] web".
std::string headerText(std::string_view section);

// All keys, in the order of docs/config.md. The keys of a section are adjacent.
class KeyTable {
public:
  explicit KeyTable(const ModelFamilies &families);

  // Adds the keys of the table `name` of a list.
  void addTable(const Section &list, const std::string &name);

  std::list<Key>::const_iterator begin() const { return keys.begin(); }
  std::list<Key>::const_iterator end() const { return keys.end(); }
  // Returns the key with this name or alias; nullptr if there is none.
  const Key *find(std::string_view section, std::string_view name) const;
  // Returns the key with this path, or nullptr. For "data.source.web.paths", it first adds the keys
  // of the table "web" of the list [[data.source]] if these keys are missing.
  const Key *reach(std::string_view path);
  bool hasSection(std::string_view section) const; // true if a key is in this section

  const ModelFamilies families;

private:
  // Sorts by section; keys of a section keep their order. All tables of a list are one section.
  void sort();

  std::list<Key> keys; // std::list, so that pointers to keys stay valid when keys are added
};

// Joins the names as "a, b or c", where "or" is `word`.
std::string listed(const std::vector<std::string> &names, const char *word);

// Returns the key's type as text: "an integer", "one of a, b, c".
std::string typeText(const Key &key);
// Returns the key's range as text: "from 1 to 8", "at least 1"; "" for a key without a range.
std::string rangeText(const Key &key);
// Returns the canonical spellings of the key's choices, without aliases.
std::vector<std::string> choiceNames(const Key &key);
// Returns the key's documentation as markdown. It names the families if some lack the key.
std::string docText(const Key &key);

} // namespace lmc::config
