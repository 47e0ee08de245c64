// Makes the identity of a run. When a run continues, its identity is compared with the recorded
// one, so that no change goes unnoticed.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/settings/Settings.h"

#include <string>
#include <vector>

namespace lmc {

// A setting with another value, or other contents of its token files, than at an earlier start.
struct SettingChange {
  std::string key;         // "lr_schedule.lr"
  std::string from, to;    // the values at the earlier and at the later start, as texts
  bool identity = false;   // true if the change makes the run train another model
  std::string derivedFrom; // key whose declared change covers this one, too; "": none
};

// Describes a run of `plan` with `settings`, but sets neither `run`, the data nor `changes`.
RunIdentity describeRun(const PlanFile &plan, const SettingTable &settings);

// Returns a new value for RunIdentity::run.
std::string drawRunId();

// Returns the changes of `lmc-run --set` that a run recorded and that a restart with `plan`
// repeats, in the form that RunSettings::read takes. A change is repeated if the plan's own value
// of the setting is the same as before, so that an old `--set` does not hide a new value in the
// TOML file. With `hasPosition`, data.shuffle_block is also repeated if it is a default in the
// plan, because the recorded position counts tokens in the order that this block gives.
std::vector<std::string> repeatedOverrides(const RunIdentity &before, const plan::Plan &plan,
                                           bool hasPosition);

// Returns the settings that differ. Left out are those that name token files, and those that only
// one side knows and that are at their default: a newer release has more settings.
std::vector<SettingChange> compareSettings(const RunIdentity &before, const RunIdentity &now);

// Returns how the data differs, as changes of the settings that name token files. The contents of
// files are compared in the order in which they are read, and not their paths. Validation data is
// no part of the identity.
std::vector<SettingChange> compareData(const RunIdentity &before, const RunIdentity &now);

// Returns true if a change gives the training data another order, so that the position in the data
// loses its meaning.
bool reordersData(const std::vector<SettingChange> &changes);
// Returns true if the changes, whatever they do to the order of all data, keep the order of the
// source whose files the setting `key` names.
bool keepsSource(const std::vector<SettingChange> &changes, std::string_view key);

// Returns the changes of identity that no element of `declared` names. An element is a key, the key
// that its default follows, or a section.
std::vector<SettingChange> undeclared(const std::vector<SettingChange> &changes,
                                      const std::vector<std::string> &declared);

// Returns an error if an element of `declared` is neither a setting nor a section of `now` or of
// `before`, which may be null.
Result<void> checkDeclarations(const std::vector<std::string> &declared, const RunIdentity &now,
                               const RunIdentity *before);

// Returns "lr_schedule.lr is 0.001 there and 0.002 here" for each change, joined by "; ".
std::string describe(const std::vector<SettingChange> &changes);

} // namespace lmc
