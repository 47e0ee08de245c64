// The rules between the settings that a run reads. `lmc compile` checks a job with them, and
// `lmc-run` a plan with the changes of `--set`, so that both accept the same settings.
#pragma once

#include "ground/config/Config.h"
#include "ground/settings/LrSettings.h"
#include "ground/settings/SettingTable.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Returns what is wrong with the settings together, in the order of the rules. `table` says where
// the values of `config` come from.
std::vector<SettingFault> settingFaults(const Config &config, const SettingTable &table);

// Returns the keys of [lr_schedule].
LrKeys lrKeys(const Config &config, const SettingTable &table);

// Returns the keys of the schedule of a phase, whose first step is the first one of the schedule.
// What the phase does not give of a decay is as in [lr_schedule].
LrKeys phaseLrKeys(const Config &config, const SettingTable &table, const PhaseConfig &phase);

// Returns the steps between two checkpoints for a plan whose predicted step takes `stepSeconds` (0:
// it has no prediction); 0: a checkpoint is made only at the end. checkpoint.interval counts, or
// checkpoint.interval_minutes, whichever was given later.
int64_t checkpointInterval(const Config &config, const SettingTable &table, double stepSeconds);

// Returns a warning if the job saves nothing before its end and is predicted to be longer than half
// an hour; "" otherwise.
std::string unsavedWarning(const Config &config, const SettingTable &table, double stepSeconds);

// Returns the multiples of `n` just below and above `value`, for error messages: "8 or 16".
std::string nearestMultiples(int64_t n, int64_t value);

// The steps from `first` to `last`.
struct StepRange {
  uint64_t first = 0, last = 0;
};

// Reads "120,130-140"; "" has no steps. Error: `text` is not of this form.
Result<std::vector<StepRange>> readStepRanges(std::string_view text);

} // namespace lmc
