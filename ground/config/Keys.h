// The table of keys: everything that is known about each key of the TOML. ground/config/keys has
// its rows.
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

// The field of Config that stores a key's value; the type of the field is the type of the key.
using Field = std::variant<int64_t *, uint64_t *, double *, bool *, std::string *,
                           std::vector<std::string> *, std::vector<int64_t> *, DataType *,
                           RecomputeMode *, ShardingStrategy *, RopeScalingType *>;

// A word that a key accepts. For keys of an enum or integer type, `value` is what the word stands
// for. The first of several words with the same value is the canonical spelling; the others are
// aliases.
struct Choice {
  const char *name = "";
  int value = 0;
};

// A default that follows another key: the value of `key`, divided by `divisor`.
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
  // Range of a number, or of each number of a list; inclusive.
  double minimum = -kUnbounded, maximum = kUnbounded;
  std::vector<Choice> choices = {};
  bool required = false;
  // The default as text, if it is not simply the initial value of the field.
  const char *defaultText = "";
  DerivedDefault derived = {};
  bool runTime = false;  // `lmc-run --set` may change the key
  // `lmc-run --set` may change the key if the job gives it; otherwise the plan does not use it.
  bool runTimeIfGiven = false;
  bool identity = false; // another value trains another model: a restart must declare the change
  std::string doc = {};
  // The families that have the key; empty: all families. KeyTable fills it in.
  ModelFamilies families = {};

  std::string path() const { return section + "." + name; }
  bool isSize() const { return std::string_view(unit) == "bytes"; }
  bool isOf(const ModelFamily &family) const;
};

struct Section {
  const char *name;
  const char *doc;
  // Only of a list of tables, [[data.source]]. Each table has a name, given by `name = "web"`, and
  // the keys that this function returns for the name; their section is "data.source.web".
  std::function<std::vector<Key>(const std::string &name)> keysOf = nullptr;
};

// Returns all sections, in the order of docs/config.md.
const std::vector<Section> &sections();
// Returns the section with this name; nullptr if there is none.
const Section *findSection(std::string_view name);
// Returns the list, "data.source", that has the section of one of its tables, "data.source.web";
// nullptr for any other section.
const Section *listOf(std::string_view section);
// Returns the section as the user writes it: "[data]", or "[[data.source]] web".
std::string headerText(std::string_view section);

// All keys, those of every job, of the families and of the tables of lists, in the order of
// docs/config.md. Keys of the same section are adjacent.
class KeyTable {
public:
  explicit KeyTable(const ModelFamilies &families);

  // Adds the keys of the table `name` of a list, after those of the sections before it.
  void addTable(const Section &list, const std::string &name);

  std::list<Key>::const_iterator begin() const { return keys.begin(); }
  std::list<Key>::const_iterator end() const { return keys.end(); }
  // Returns the key with this name or alias; nullptr if there is none.
  const Key *find(std::string_view section, std::string_view name) const;
  // Returns the key with this path, "data.source.web.paths"; nullptr if there is none. The table of
  // a list that the path names is added if the table of keys does not have it.
  const Key *reach(std::string_view path);
  bool hasSection(std::string_view section) const; // that has keys

  const ModelFamilies families;

private:
  // Sorts the keys by their sections. Those of one section, or of all tables of a list, stay in
  // their order.
  void sort();

  std::list<Key> keys; // std::list: a key stays where it is when others are added
};

// Joins the names as "a, b or c", where "or" is `word`.
std::string listed(const std::vector<std::string> &names, const char *word);

// Returns the key's type as text: "an integer", "one of a, b, c".
std::string typeText(const Key &key);
// Returns the key's range as text: "from 1 to 8", "at least 1"; "" for a key without a range.
std::string rangeText(const Key &key);
// Returns the canonical spellings of the key's choices, without aliases.
std::vector<std::string> choiceNames(const Key &key);
// Returns the key's doc as markdown, with the families that have the key if not all do.
std::string docText(const Key &key);

} // namespace lmc::config
