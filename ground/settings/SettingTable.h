// The settings of a plan, of a job or of a run, each with its origin. SettingRules.h checks them.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

namespace plan {
enum class SettingType : uint8_t; // plan_generated.h
} // namespace plan

// The origin of a setting's value. RunSet exists only in a run, not in a plan.
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
  // A derived default is the value of the setting `derivedFrom`, divided by `derivedDivisor`.
  std::string derivedFrom = {};
  double derivedDivisor = 1;
  // Only the settings of a job have the members from here on.
  double minimum = 0, maximum = 0;       // range of a number, inclusive; may be infinite
  std::vector<std::string> choices = {}; // accepted texts; empty: any text
  std::string doc = {};
  bool runTime = false; // `lmc-run --set` may change the setting

  // Returns the value as one text; a list as "[a, b]".
  std::string text() const;
};

// A broken rule, or a warning about a setting that probably lacks the intended effect.
struct SettingFault {
  std::string key;                     // the key that the report names: "checkpoint.keep_best"
  std::vector<std::string> reads = {}; // other keys on which the fault depends
  std::string text;                    // "keep_best = \"web\" is no set of validation data; ..."
  bool isWarning = false;              // true if the job may go on despite the fault

  // Returns the text with the key's section before it: "checkpoint.keep_best = ...".
  std::string named() const;
};

// A table of settings. RunSettings (ground/config/RunSettings.h) makes the table of a run.
class SettingTable {
public:
  SettingTable() = default;
  explicit SettingTable(std::vector<Setting> settings) : entries(std::move(settings)) {}

  const std::vector<Setting> &all() const { return entries; } // in the plan's order
  // Returns the setting `key`; nullptr if the plan has none.
  const Setting *find(std::string_view key) const;

  // Returns the names of a list's tables, in order: "web" of "data.source.web.paths" for the list
  // "data.source". Returns none if the tables are replaced by a key that was given later (--set is
  // later than the file): [[data.source]] by data.train, or [[validation]] by data.validation.
  std::vector<std::string> tablesOf(std::string_view list) const;
  // Returns the files of data.train or data.validation; none if its list of tables was given later.
  std::vector<std::string> files(std::string_view key) const;
  // Returns the value of `key`. Error: no setting has this key, or its value is no number.
  Result<double> number(std::string_view key) const;

private:
  // Returns the latest (greatest) origin of the settings in a list's tables; Default if none exist.
  SettingOrigin originOfTables(std::string_view list) const;

  std::vector<Setting> entries;
};

// An entry of the list `sources` of a [[phase]]: a source of the training data.
struct PhaseSource {
  std::string name;
  std::optional<double> weight; // absent: the weight that [[data.source]] gives
};

// Reads "NAME" or "NAME=WEIGHT". Error: the weight is not a finite number above 0.
Result<PhaseSource> parsePhaseSource(const std::string &text);

} // namespace lmc
