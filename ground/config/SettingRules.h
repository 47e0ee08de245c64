// The rules that the settings of a run must obey together. `lmc compile` checks a job by them.
// `lmc-run` checks a plan whose settings `--set` has changed.
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

// Returns the broken rules and the warnings. `table` has the origin of each value in `config`.
std::vector<SettingFault> settingFaults(const Config &config, const SettingTable &table);

// Returns the keys of [lr_schedule].
LrKeys lrKeys(const Config &config, const SettingTable &table);

// Returns the keys of a phase's own schedule, which begins at the first step of the phase. The keys
// wsd_decay_* (and `lr` if the phase gives none) have their values from [lr_schedule].
LrKeys phaseLrKeys(const Config &config, const SettingTable &table, const PhaseConfig &phase);

// Returns the number of steps between two checkpoints, or 0 if only the end of the run writes one.
// It is computed from checkpoint.interval or checkpoint.interval_minutes, whichever was given
// later. `stepSeconds` is the predicted time of a step in seconds, or 0 without a prediction.
int64_t checkpointInterval(const Config &config, const SettingTable &table, double stepSeconds);

// Returns a warning if a job of over half an hour (as predicted) saves only at its end; else "".
std::string unsavedWarning(const Config &config, const SettingTable &table, double stepSeconds);

// Returns the multiples of `n` next below and above `value`, for error messages: "8 or 16".
std::string nearestMultiples(int64_t n, int64_t value);

struct StepRange {
  uint64_t first = 0, last = 0;
};

// Reads step ranges such as "120,130-140". An empty text has none. Error: `text` has another form.
Result<std::vector<StepRange>> readStepRanges(std::string_view text);

} // namespace lmc
