// The identity of a run: what decides which model its training gives. A run's folder and its
// checkpoints record it. When a run goes on, its identity is compared with the recorded one, so that
// nothing changes in silence.
#pragma once

#include "runtime/data/Fingerprint.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/train/Settings.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmc {

// The value that a run used for a setting.
struct RecordedSetting {
  std::string value;               // canonical text, unless it is a list
  std::vector<std::string> values; // the elements of a list
  std::string origin;              // originName()
  bool identity = false;           // another value trains another model
  std::string derivedFrom;         // the setting that the default follows; "": none
  // The plan's own value as one text, which differs from the value after `lmc-run --set`.
  std::string planned;

  std::string text() const; // the value as one text; a list as "[a, b]"
};

// A setting whose value changed between two starts of a run, or the data.
struct SettingChange {
  std::string key;      // "lr_schedule.lr"
  std::string from, to; // as texts
  bool identity = false;
  std::string derivedFrom; // a declaration of this key covers the change, too; "": none
};

// A change of identity that the user declared.
struct DeclaredChange {
  uint64_t step = 0; // optimizer steps that were done before the change
  std::string key, from, to;
};

struct RunIdentity {
  std::string run;      // drawn at the run's first start, 16 hexadecimal digits
  std::string planHash; // SHA-256 of the plan file
  std::string planPath; // as it was given
  std::string target;   // "cpu", "cuda:sm_90a"
  std::string compilerVersion, runtimeVersion;
  std::string host;               // name of the machine, its CPU and system
  std::string configPath;         // the TOML file that the plan was compiled from
  std::string configDirectory;    // relative paths in settings start here
  std::string configToml;         // contents of that file
  std::string huggingfaceConfig;  // config.json of exports
  std::map<std::string, RecordedSetting> settings; // by key
  std::vector<FileFingerprint> trainData, validationData;
  std::vector<DeclaredChange> changes;             // in the order of time
};

// Describes a run of `plan` with `settings`, but sets neither `run`, the data nor `changes`.
RunIdentity describeRun(const PlanFile &plan, const SettingTable &settings);

// Returns a new value for RunIdentity::run.
std::string drawRunId();

nlohmann::json toJson(const RunIdentity &identity);
// Throws nlohmann::json::exception if `json` is not what toJson() returns.
RunIdentity runIdentityFromJson(const nlohmann::json &json);

// Returns the changes of `lmc-run --set` that a run recorded and that a restart with `plan` repeats,
// in the form that SettingTable::fromPlan takes. A change is repeated if the plan's own value of the
// setting is what it was, so that a new value in the TOML file is not hidden by an old `--set`. The
// block of the shuffle is repeated, too, if it is only a default in the plan: the position in the
// data counts in its order.
std::vector<std::string> repeatedOverrides(const RunIdentity &before, const plan::Plan &plan);

// Returns the settings that differ. data.train and data.validation are left out.
std::vector<SettingChange> compareSettings(const RunIdentity &before, const RunIdentity &now);

// Returns how the data differs, as changes of data.train and data.validation. The contents of files
// are compared in the order in which they are read, and not their paths. Only data.train is part of
// the identity.
std::vector<SettingChange> compareData(const RunIdentity &before, const RunIdentity &now);

// Returns true if one of the changes gives the training data another order. The position in the
// data then has no meaning.
bool reordersData(const std::vector<SettingChange> &changes);

// Returns the changes of identity that no element of `declared` names. An element is a key, the key
// that its default follows, or a section.
std::vector<SettingChange> undeclared(const std::vector<SettingChange> &changes,
                                      const std::vector<std::string> &declared);

// Returns "lr_schedule.lr is 0.001 there and 0.002 here" for each change, joined by "; ".
std::string describe(const std::vector<SettingChange> &changes);

} // namespace lmc
