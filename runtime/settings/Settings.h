// The settings of a run in the form that the trainer uses, made from ground/config/Config.h.
#pragma once

#include "ground/config/RunSettings.h"
#include "ground/config/SettingRules.h"
#include "ground/plan/PlanFile.h"
#include "ground/settings/LrSettings.h"
#include "ground/support/Result.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/data/DataSource.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmc {

// A set of validation data: a table of [[validation]], or data.validation.
struct ValidationSettings {
  std::string name;               // "": the set is data.validation
  std::string key;                // setting with the files of the set: "validation.web.paths"
  std::vector<std::string> paths; // files or globs
  int64_t interval = 0;           // number of steps between validations; 0: only at the end
  int64_t iters = 0;              // number of batches of GBS sequences; 0: all data

  // Returns true if the set is evaluated after `step`. `last`: `step` is the run's last step.
  bool isDue(uint64_t step, bool last) const {
    return last || (interval > 0 && step % static_cast<uint64_t>(interval) == 0);
  }
};

struct TrainSettings {
  Config config;       // values of all keys, from which all other members are made
  double muonRate = 1; // Muon's learning rate as a multiple of the schedule's
  LrSettings lr;
  // The sources of [[data.source]] in the order of their names, or one source without a name, which
  // has the files of data.train. Empty: no data.
  std::vector<SourceOptions> trainData;
  std::vector<ValidationSettings> validations; // in the order of their names
  // Steps between checkpoints; 0: only at the end. Session::open() converts interval_minutes.
  int64_t checkpointInterval = 0;
  std::vector<StepRange> skipSteps; // steps that do not update the weights
  // Settings that may not be intended (ground/config/SettingRules.h).
  std::vector<std::string> warnings;

  // Makes the settings of a run or, with `phase`, of that phase. Error: settings break a rule.
  static Result<TrainSettings> make(const RunSettings &settings,
                                    const PlanFile::Phase *phase = nullptr);

  bool isMixed() const { return !trainData.empty() && !trainData.front().name.empty(); }
  // Returns the setting that names the training data: "data.train"; "data.source" for a mixture.
  const char *trainKey() const { return isMixed() ? kSources : kTrainData; }
};

// The numbers that AdamW uses in one step; parameter groups may replace some of them.
struct AdamWStep {
  int64_t number = 0; // number of the step, from 1
  double lr = 0;
  double correction1 = 1, correction2 = 1; // bias corrections: 1 - beta^number
  double eps = 0;
  double weightDecay = 0;                            // for parameters with weight decay
  std::map<std::string, ParameterGroup> groups = {}; // groups by name

  // Returns the numbers of the step for the parameters of `group`; "": for parameters of no group.
  AdamWStep of(const std::string &group) const;
};

// Returns the numbers of the step `number` with the learning rate `lr`.
AdamWStep adamWStep(const TrainSettings &settings, int64_t number, double lr);

// The key of the phase's name in a checkpoint's extra state.
inline constexpr const char *kPhase = "phase";

// A phase of a run: the steps (firstStep, lastStep]. They use one program of the plan.
struct RunPhase {
  size_t index = 0; // index in PlanFile::phases()
  std::string name; // "" for a run without phases
  uint64_t firstStep = 0, lastStep = 0;
};

// Returns the phases of a run that ends with step `totalSteps`. A run without phases has one.
std::vector<RunPhase> phasesOf(const PlanFile &plan, uint64_t totalSteps);

// Returns the number of the phase of step `step` if `isDone` is true, else of step `step` + 1.
size_t phaseAt(const std::vector<RunPhase> &phases, uint64_t step, bool isDone);

} // namespace lmc
