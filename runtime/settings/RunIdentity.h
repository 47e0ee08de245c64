// Makes the identity of a run, and compares it with that of an earlier start.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/settings/Settings.h"

#include <string>
#include <vector>

namespace lmc {

// A setting that differs from an earlier start in its value, or in the contents of its token files.
struct SettingChange {
  std::string key;         // "lr_schedule.lr"
  std::string from, to;    // the values at the earlier and at the later start, as texts
  bool identity = false;   // true if the change makes the run train another model
  std::string derivedFrom; // declaring a change of this key also declares this change; "": none
};

// Returns the identity of a run of `plan` with `settings`; `run`, `data` and `changes` stay empty.
RunIdentity describeRun(const PlanFile &plan, const SettingTable &settings);

// Returns a random identifier for RunIdentity::run.
std::string drawRunId();

// Returns the `lmc-run --set` values in `before` that apply again in a restart with `plan`, in the
// form that RunSettings::read() takes. A value applies again only if `plan` has the same value as
// the earlier plan: an old --set must not hide a new value in the TOML file. If `hasPosition`, the
// restart continues at a position in the data. This position is valid only for the recorded default
// of data.shuffle_block, so this default is returned too.
std::vector<std::string> repeatedOverrides(const RunIdentity &before, const plan::Plan &plan,
                                           bool hasPosition);

// Returns the settings that differ, except those that name token files. If only one identity has a
// setting, as after an update of lmc, it differs only if its value is not the default.
std::vector<SettingChange> compareSettings(const RunIdentity &before, const RunIdentity &now);

// Compares the token files of two identities by order and contents, but not by path. Returns a
// change for each setting that names token files, if its files differ.
std::vector<SettingChange> compareData(const RunIdentity &before, const RunIdentity &now);

// Returns true if one of the changes alters the order of the training data.
bool reordersData(const std::vector<SettingChange> &changes);
// Returns true if the changes keep the order within the source whose files the setting `key` names.
bool keepsSource(const std::vector<SettingChange> &changes, std::string_view key);

// Returns the changes whose `identity` is true and that no element of `declared` covers. An element
// covers the setting or section that it names, and all settings whose defaults derive from these.
std::vector<SettingChange> undeclared(const std::vector<SettingChange> &changes,
                                      const std::vector<std::string> &declared);

// Error: a name in `declared` is no setting or section of `now` or of `before` (may be null).
Result<void> checkDeclarations(const std::vector<std::string> &declared, const RunIdentity &now,
                               const RunIdentity *before);

// Returns "lr_schedule.lr is 0.001 there and 0.002 here" for each change, joined by "; ".
std::string describe(const std::vector<SettingChange> &changes);

} // namespace lmc
