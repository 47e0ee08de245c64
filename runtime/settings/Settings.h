// The settings of a run in the form in which the trainer uses them. The keys themselves, with their
// types, ranges and defaults, are those of the TOML file (ground/config/Config.h).
#pragma once

#include "ground/config/RunSettings.h"
#include "ground/plan/PlanFile.h"
#include "ground/settings/LrSettings.h"
#include "ground/settings/SettingRules.h"
#include "ground/support/Result.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/data/DataSource.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// A set of validation data: a table of [[validation]], or data.validation, which has no name.
struct ValidationSettings {
  std::string name;               // "": data.validation
  std::string key;                // setting that names the files: "validation.web.paths"
  std::vector<std::string> paths; // files or globs
  int64_t interval = 0;           // in steps; 0: only at the end
  int64_t iters = 0;              // number of batches of GBS sequences; 0: all data

  // Returns true if the set is evaluated after step `step`, which may be the last one.
  bool isDue(uint64_t step, bool last) const {
    return last || (interval > 0 && step % static_cast<uint64_t>(interval) == 0);
  }
};

struct TrainSettings {
  Config config;       // the values of all keys; what follows is made of them
  double muonRate = 1; // learning rate of Muon, in learning rates of the schedule
  LrSettings lr;
  // The sources of [[data.source]] in the order of their names, or one without a name, which has
  // the files of data.train; empty: no data.
  std::vector<SourceOptions> trainData;
  std::vector<ValidationSettings> validations; // in the order of their names
  // In steps; 0: only at the end. Session::open() sets it where checkpoint.interval_minutes counts.
  int64_t checkpointInterval = 0;
  std::vector<StepRange> skipSteps; // steps whose update is left out
  // What may not be meant, by the rules between settings (ground/settings/SettingRules.h).
  std::vector<std::string> warnings;

  // Makes the settings of a run or, with `phase`, of one of its phases. Error: settings break a
  // rule.
  static Result<TrainSettings> make(const RunSettings &settings,
                                    const PlanFile::Phase *phase = nullptr);

  bool isMixed() const { return !trainData.empty() && !trainData.front().name.empty(); }
  // Returns the setting that names the training data: "data.train", or "data.source" for a mixture.
  const char *trainKey() const { return isMixed() ? kSources : kTrainData; }
};

} // namespace lmc
