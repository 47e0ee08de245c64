// The rules between the settings that a run reads. `lmc compile` judges a job by them, and
// `lmc-run` a plan with the changes of `--set`: what one of them takes, the other takes too.
#pragma once

#include "ground/settings/LrSettings.h"
#include "ground/settings/SettingTable.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// A broken rule, or a setting that hardly does what its author expects.
struct SettingFault {
  std::string key;                     // that it is reported for: "checkpoint.keep_best"
  std::vector<std::string> reads = {}; // the other keys that it depends on
  std::string text;                    // "keep_best = \"web\" is no set of validation data; ..."
  bool isWarning = false;              // the job may go on

  // Returns the text with the key's section in front of it: "checkpoint.keep_best = ...".
  std::string named() const;
};

// Returns what is wrong with the settings together, in the order of the rules. Keys that the table
// does not have are at their defaults: a plan of an earlier release does not have them.
std::vector<SettingFault> settingFaults(const SettingTable &table);

// Returns the keys of the schedule of `section` ("lr_schedule", "phase.NAME"), in which those that
// the section does not have are as in `keys`. Error: a key has another type.
Result<LrKeys> readLrKeys(const SettingTable &table, const std::string &section, LrKeys keys);

// Returns the keys of the schedule of the phase `name`, whose first step is the first one of the
// schedule. What it does not give of a decay is as in [lr_schedule].
Result<LrKeys> readPhaseLrKeys(const SettingTable &table, const std::string &name);

// Returns the steps between two checkpoints for a plan whose predicted step takes `stepSeconds` (0:
// it has no prediction); 0: a checkpoint is made only at the end. checkpoint.interval counts, or
// checkpoint.interval_minutes, whichever was given later.
int64_t checkpointInterval(const SettingTable &table, double stepSeconds);

// Returns a warning if the job saves nothing before its end and is predicted to be longer than half
// an hour; "" otherwise.
std::string unsavedWarning(const SettingTable &table, double stepSeconds);

// Returns the multiples of `n` just below and above `value`, for error messages: "8 or 16".
std::string nearestMultiples(int64_t n, int64_t value);

// The steps from `first` to `last`.
struct StepRange {
  uint64_t first = 0, last = 0;
};

// Reads "120,130-140"; "" has no steps. Error: `text` is not of this form.
Result<std::vector<StepRange>> readStepRanges(std::string_view text);

} // namespace lmc
