// The rules between the settings of a run, by which `lmc compile` checks a job, and `lmc-run` a
// plan with the changes of `--set`.
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

// Returns the faults of the settings. `table` has the origins of the values of `config`.
std::vector<SettingFault> settingFaults(const Config &config, const SettingTable &table);

// Returns the keys of [lr_schedule].
LrKeys lrKeys(const Config &config, const SettingTable &table);

// Returns the keys of a phase's own schedule, which begins at the first step of the phase. Keys
// that the phase does not give are those of [lr_schedule].
LrKeys phaseLrKeys(const Config &config, const SettingTable &table, const PhaseConfig &phase);

// Returns the number of steps between two checkpoints; 0: only the end makes one. It follows from
// checkpoint.interval or checkpoint.interval_minutes, whichever was given later. `stepSeconds` is
// the predicted time of a step in seconds; 0: there is no prediction.
int64_t checkpointInterval(const Config &config, const SettingTable &table, double stepSeconds);

// Returns a warning if a job that is predicted to take more than half an hour saves only at its
// end; else "".
std::string unsavedWarning(const Config &config, const SettingTable &table, double stepSeconds);

// Returns the multiples of `n` next below and above `value`, for error messages: "8 or 16".
std::string nearestMultiples(int64_t n, int64_t value);

struct StepRange {
  uint64_t first = 0, last = 0;
};

// Reads a text such as "120,130-140"; "" has no steps. Error: `text` is not of this form.
Result<std::vector<StepRange>> readStepRanges(std::string_view text);

} // namespace lmc
