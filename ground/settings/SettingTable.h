// Settings as texts, each with the place that it comes from: those of a plan, of a job, or of a
// run. All can be judged by the same rules (SettingRules.h).
#pragma once

#include "ground/support/Result.h"
#include "plan_generated.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Where the value of a setting comes from. The first three are those of the plan.
enum class SettingOrigin { Default, File, CompileSet, RunSet };

// Returns "default", "file", "lmc compile --set" or "lmc-run --set".
const char *originName(SettingOrigin origin);

// A setting with its final value.
struct Setting {
  std::string key; // "lr_schedule.lr"
  plan::SettingType type;
  std::string value;               // canonical text, unless it is a list
  std::vector<std::string> values; // the elements of a StringList
  SettingOrigin origin;
  bool identity; // another value trains another model
  // For a default that follows another setting: its key ("" otherwise), and the number that its
  // value is divided by.
  std::string derivedFrom;
  double derivedDivisor;

  // Returns the value as one text; a list as "[a, b]".
  std::string text() const;
};

// A table of settings (ground/config/RunSettings.h makes that of a run).
class SettingTable {
public:
  SettingTable() = default;
  explicit SettingTable(std::vector<Setting> settings) : entries(std::move(settings)) {}

  const std::vector<Setting> &all() const { return entries; } // in the plan's order
  // Returns the setting `key`; nullptr if the plan has none.
  const Setting *find(std::string_view key) const;

  // Returns the names of the tables of a list in their order: those of "data.source" are the names
  // in its settings, as in "data.source.web.paths". Data is given by one key or by tables
  // (data.train or [[data.source]], data.validation or [[validation]]), and what was given later
  // counts: a --set goes before the file. The tables do not count after a later key, not even
  // after one that is [], and none is returned then.
  std::vector<std::string> tablesOf(std::string_view list) const;
  // Returns all of them, with those that do not count.
  std::vector<std::string> givenTablesOf(std::string_view list) const;

  // Returns the value of `key`. Error: the plan has no key of this name and type. A key of data
  // is an empty list where tables were given later.
  Result<int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  Result<std::vector<std::string>> list(std::string_view key) const;

private:
  // Returns where the list's tables were given last, or Default if there are none.
  SettingOrigin originOfTables(std::string_view list) const;
  Result<const Setting *> find(std::string_view key, plan::SettingType type) const;

  std::vector<Setting> entries;
};

} // namespace lmc
