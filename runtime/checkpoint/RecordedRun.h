// The identity of a run is the set of settings and training data that determine the trained model.
// The run's folder and checkpoints record it; runtime/settings/RunIdentity.h makes and compares it.
#pragma once

#include "runtime/data/Fingerprint.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

struct RecordedSetting {
  std::string value;               // canonical text, unless the setting is a list
  std::vector<std::string> values; // the elements of a list
  std::string origin;              // originName() of the SettingOrigin that gave the value
  bool identity = false;           // true if a different value gives a different model
  std::string derivedFrom;         // the setting from which the default is derived; "": none
  // The value in the plan, as text. `value` may differ from it because of `lmc-run --set`.
  std::string planned;

  std::string text() const; // the value as one text; a list as "[a, b]"
};

// A change of identity that the user declared.
struct DeclaredChange {
  uint64_t step = 0; // optimizer steps that were done before the change
  std::string key, from, to;

  bool operator==(const DeclaredChange &) const = default;
};

// A rollback. A spike began at step `spike`, so the guard went back to the checkpoint of step
// `step`. Training then skipped the data before `position`.
struct Rollback {
  uint64_t step = 0, spike = 0, position = 0;
};

struct RunIdentity {
  std::string run;         // the run's random name, 16 hexadecimal digits
  std::string startedFrom; // path of another run's checkpoint, with which this one began; "": none
  std::string init;        // initial weights by --init; "": none
  std::string planHash; // SHA-256 of the plan file
  std::string planPath; // path of the plan file, as the user gave it
  std::string target;   // "cpu", "cuda:sm_90a"
  std::string compilerVersion, runtimeVersion;
  std::string host; // name of rank 0's machine, its CPU and system
  // The device, driver and libraries of rank 0; "" if an earlier release saved the run.
  std::string device;
  std::string configPath;         // path of the TOML file from which the plan was compiled
  std::string configDirectory;    // relative paths in settings start at this folder
  std::string configToml;         // contents of the file `configPath`
  std::string huggingfaceConfig;  // contents of the config.json of exports; "": none
  std::string notExportable;      // reason why the model has no export; "": none is known
  std::map<std::string, RecordedSetting> settings; // the settings, by key
  // The fingerprints of the token files that each setting (the key) names, in reading order.
  std::map<std::string, std::vector<FileFingerprint>> data;
  std::vector<DeclaredChange> changes; // the oldest first
  std::vector<Rollback> rollbacks;     // the oldest first

  std::vector<FileFingerprint> trainData() const; // the fingerprints of all sources
};

inline constexpr const char *kTrainData = "data.train", *kValidationData = "data.validation",
                            *kSources = "data.source", *kValidationSets = "validation";

// Returns true for the settings that name token files.
bool namesTokenFiles(std::string_view key);
// Returns true for settings that name validation data, which is no part of the identity.
bool namesValidationFiles(std::string_view key);

nlohmann::json toJson(const RunIdentity &identity);
// Throws nlohmann::json::exception if `json` is not what toJson() returns.
RunIdentity runIdentityFromJson(const nlohmann::json &json);

} // namespace lmc
