// Settings as texts, each with the place that it comes from: those of a plan, of a job, or of a
// run. The same rules (SettingRules.h) check all of them.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

namespace plan {
enum class SettingType : uint8_t; // plan_generated.h
} // namespace plan

// Where the value of a setting comes from. The first three are those of the plan.
enum class SettingOrigin { Default, File, CompileSet, RunSet };

// Returns "default", "file", "lmc compile --set" or "lmc-run --set".
const char *originName(SettingOrigin origin);

// A key with its final value.
struct Setting {
  std::string key = {}; // "lr_schedule.lr"
  plan::SettingType type = {};
  std::string value = {};               // canonical text, unless it is a list
  std::vector<std::string> values = {}; // the elements of a StringList
  SettingOrigin origin = SettingOrigin::Default;
  bool identity = false; // another value trains another model: a restart must declare the change
  // For a default that follows another setting: its key ("" otherwise), and the number that its
  // value is divided by.
  std::string derivedFrom = {};
  double derivedDivisor = 1;
  // What a job's settings have, and those that a run reads from its plan do not have.
  double minimum = 0, maximum = 0;       // range of a number, inclusive; may be infinite
  std::vector<std::string> choices = {}; // accepted texts; empty: any text
  std::string doc = {};
  bool runTime = false; // `lmc-run --set` may change it

  // Returns the value as one text; a list as "[a, b]".
  std::string text() const;
};

// A broken rule, or a setting that probably has not the intended effect.
struct SettingFault {
  std::string key;                     // the key at which it is reported: "checkpoint.keep_best"
  std::vector<std::string> reads = {}; // other keys on which it depends
  std::string text;                    // "keep_best = \"web\" is no set of validation data; ..."
  bool isWarning = false;              // the job may go on

  // Returns the text with the key's section in front of it: "checkpoint.keep_best = ...".
  std::string named() const;
};

// A table of settings. RunSettings (ground/config/RunSettings.h) makes that of a run.
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
  // counts: a --set goes before the file. If the key was given later, even as [], no table is
  // returned.
  std::vector<std::string> tablesOf(std::string_view list) const;
  // Returns the files of `key`, data.train or data.validation; none where tables were given later.
  std::vector<std::string> files(std::string_view key) const;
  // Returns the value of `key`. Error: the plan has no number of this name.
  Result<double> number(std::string_view key) const;

private:
  // Returns where the list's tables were given last, or Default if there are none.
  SettingOrigin originOfTables(std::string_view list) const;

  std::vector<Setting> entries;
};

} // namespace lmc
