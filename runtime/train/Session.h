// A plan on a device with its state: what training, evaluation and dumps share.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/data/DataSource.h"
#include "runtime/device/Device.h"
#include "runtime/train/Evaluator.h"
#include "runtime/train/Functions.h"
#include "runtime/train/Run.h"
#include "runtime/train/Scalars.h"
#include "runtime/train/Settings.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

class Session {
public:
  // Opens the plan and reads its settings. Nothing is allocated yet, so that the
  // mistakes of a command line show at once.
  static Result<std::unique_ptr<Session>> open(const RunOptions &options);

  // Training or validation data as the settings say.
  Result<std::unique_ptr<DataSource>> openTrainData() const;
  Result<std::unique_ptr<DataSource>> openValidationData() const;

  // Reads state.json of `checkpoint`, if there is one, and checks that it belongs
  // to this plan. Sets `progress`.
  Result<void> chooseStart(const std::optional<std::string> &checkpoint);

  // Loads the device, checks that it holds just what the plan says, records the
  // functions, and sets all state: from the checkpoint, else from `init`, else
  // from the initializers.
  Result<void> start(const RunOptions &options);

  // The evaluator on the validation data; nullptr when the settings ask for none.
  Result<std::unique_ptr<Evaluator>> makeEvaluator();

  // "2.50 GiB in 2 arenas", and the other facts of a run, a line each.
  std::vector<std::string> facts() const;

  std::unique_ptr<PlanFile> plan;
  TrainSettings settings;
  std::unique_ptr<Device> device;
  DeviceInfo deviceInfo;
  Profile profile;
  std::unique_ptr<Functions> functions;
  std::unique_ptr<Scalars> scalars;
  CheckpointState progress;              // what is done
  std::optional<std::string> checkpoint; // where it came from

private:
  Result<std::unique_ptr<DataSource>>
  openData(const char *key, const std::vector<std::string> &paths, bool shuffle) const;
  Result<void> setState(const std::string &init);
};

} // namespace lmc
