// Holds a plan, the device that runs it, and its state. Training, evaluation and dumps need them.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/World.h"
#include "runtime/data/DataSource.h"
#include "runtime/device/Device.h"
#include "runtime/device/GemmChoices.h"
#include "runtime/settings/RunOptions.h"
#include "runtime/settings/Settings.h"
#include "runtime/step/Evaluator.h"
#include "runtime/step/Functions.h"
#include "runtime/step/Scalars.h"
#include "runtime/step/StepTrace.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Makes an observer, which itself runs the functions of a loaded plan while it records.
using ObserverMaker =
    std::function<Result<FunctionObserver *>(const PlanFile &plan, const DeviceInfo &device)>;

class Session {
public:
  // Reads the settings of phase number `phase` of `job` (0 if the job has no phases), with the
  // --set changes `overrides`, and allocates nothing. `job` and `world` must outlive the session.
  static Result<std::unique_ptr<Session>>
  open(const PlanFile &job, size_t phase, const std::vector<std::string> &overrides, World &world);

  // Open the training data that the settings name, or the data of a validation set.
  Result<std::unique_ptr<DataSource>> openTrainData() const;
  Result<std::unique_ptr<DataSource>> openValidationData(const ValidationSettings &set) const;

  // Prepares the device and sets all variables. The values come from the checkpoint; without one,
  // from `init`; if `init` is empty, from the initializers. All ranks must call it together. If
  // `observer` is not empty, the object that it makes must outlive the session. If the checkpoint
  // is damaged, returns it; then the session must not be used.
  Result<std::optional<DamagedCheckpoint>>
  start(const RunOptions &options, const std::string &init, const ObserverMaker &observer = {});

  // Returns the evaluators of settings.validations, in their order.
  Result<std::vector<std::unique_ptr<Evaluator>>> makeEvaluators();

  // Returns facts about the run, one per line, such as "plan: SHA-256 ...".
  std::vector<std::string> facts() const;

  World &world;
  const PlanFile *job = nullptr;  // the plan file
  const PlanFile *plan = nullptr; // the plan of the session's phase; without phases, `job`
  SettingTable settingTable;
  TrainSettings settings;
  std::unique_ptr<GemmChoices> gemms; // the device's implementations of matrix products
  std::unique_ptr<Device> device;
  DeviceInfo deviceInfo;
  Profile profile;
  std::unique_ptr<StepTrace> trace; // null without --trace
  std::unique_ptr<Functions> functions;
  std::unique_ptr<Inputs> inputs;
  std::unique_ptr<Scalars> scalars;
  CheckpointState progress;              // finished steps, samples and tokens
  std::optional<std::string> checkpoint; // path of the checkpoint that the run resumes from
  std::string initialWeights;            // path that --init gives; "": none

  // Returns the rows of a step that this rank reads.
  BatchRows rows() const;

private:
  Session(World &world) : world(world) {}
  // `share` is the number of the host's CPUs that this rank may use; 0: it is the only rank.
  Result<void> startDevice(const RunOptions &options, int share, const ObserverMaker &observer);
  Result<std::unique_ptr<DataSource>> openData(const char *key, std::vector<SourceOptions> sources,
                                               bool shuffle) const;
  Result<std::optional<DamagedCheckpoint>> setState(const std::string &init);
};

} // namespace lmc
