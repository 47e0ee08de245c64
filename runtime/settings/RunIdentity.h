// Makes the identity of a run. When a run continues, the identity is compared with the recorded
// one, so that no change is missed.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/settings/Settings.h"

#include <string>
#include <vector>

namespace lmc {

// A setting whose value, or whose token files' contents, are not those of an earlier start.
struct SettingChange {
  std::string key;         // "lr_schedule.lr"
  std::string from, to;    // the values at the earlier and at the later start, as texts
  bool identity = false;   // true if the change makes the run train another model
  std::string derivedFrom; // a declared change of this key covers this one; "": none
};

// Returns the identity of a run of `plan` with `settings`; `run`, `data` and `changes` stay empty.
RunIdentity describeRun(const PlanFile &plan, const SettingTable &settings);

// Returns a new value for RunIdentity::run.
std::string drawRunId();

// Returns the recorded changes of `lmc-run --set` that a restart with `plan` repeats, in the form
// that RunSettings::read takes. A change is repeated if the plan's own value of the setting is the
// same as before: an old `--set` must not hide a new value in the TOML file. With `hasPosition`,
// data.shuffle_block is also repeated if it is a default in the plan, because the recorded position
// counts tokens in the order that this block size gives.
std::vector<std::string> repeatedOverrides(const RunIdentity &before, const plan::Plan &plan,
                                           bool hasPosition);

// Returns the settings that differ, without those that name token files. A newer release has more
// settings: a setting that only one identity has differs only if its value is not the default.
std::vector<SettingChange> compareSettings(const RunIdentity &before, const RunIdentity &now);

// Returns how the data differs, as changes of the settings that name token files. The contents of
// files are compared in the order in which they are read; paths are not. Validation data is no part
// of the identity.
std::vector<SettingChange> compareData(const RunIdentity &before, const RunIdentity &now);

// Returns true if a change gives the training data another order, so that a recorded position in
// the data no longer applies.
bool reordersData(const std::vector<SettingChange> &changes);
// Returns true if the changes keep the order within the source whose files the setting `key` names,
// even if they change the order of the whole data.
bool keepsSource(const std::vector<SettingChange> &changes, std::string_view key);

// Returns the changes of identity that no element of `declared` names. An element names a change by
// its key, by the key that its default follows, or by its section.
std::vector<SettingChange> undeclared(const std::vector<SettingChange> &changes,
                                      const std::vector<std::string> &declared);

// Returns an error if an element of `declared` is neither a setting nor a section of `now` or of
// `before`, which may be null.
Result<void> checkDeclarations(const std::vector<std::string> &declared, const RunIdentity &now,
                               const RunIdentity *before);

// Returns "lr_schedule.lr is 0.001 there and 0.002 here" for each change, joined by "; ".
std::string describe(const std::vector<SettingChange> &changes);

} // namespace lmc
