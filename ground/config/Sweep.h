// Expands a `--set` with several values, such as lr_schedule.lr=1e-3,3e-4, into one job per value.
#pragma once

#include "ground/config/Config.h"

namespace lmc {

// A job of a sweep: the settings of the command line with one value of each key.
struct SweepJob {
  // The varied values, for names of files: "lr=1e-3-style=wsd"; "" if no key has several values.
  std::string name;
  std::vector<std::string> varied;   // varied values as settings: "lr_schedule.lr=1e-3"
  std::vector<std::string> settings; // all settings, as loadConfig() takes them
};

// The maximum number of jobs in a sweep, and of bytes in a job's name (file names: 255 bytes).
inline constexpr size_t kMaxSweepJobs = 1000, kMaxSweepName = 180;

// Returns a job for each combination of values; the values of the last key vary fastest. `settings`
// are the texts of `--set`.
//
// Commas separate the values of a sweep. Exception: guard.skip_steps=120,130-140 is one value,
// because the text of this key may contain commas. Each value of such a key must be in quotes or
// brackets to sweep the key: data.train="a.bin","b.bin".
//
// Errors, each of which begins with "--set: error: ": a value is missing beside a comma, or given
// twice; a varied key is given again; there are too many jobs, or their names are too long.
// loadConfig() reports unknown keys and wrong values.
Result<std::vector<SweepJob>> expandSettings(const std::vector<std::string> &settings,
                                             const ModelFamilies &families);

} // namespace lmc
