// Computes how much a step changed each tensor, from the ranks' copies of the state after the step.
#pragma once

#include "runtime/comm/Communicator.h"
#include "runtime/folder/Snapshot.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/settings/Settings.h"

#include <functional>
#include <vector>

namespace lmc {

using PartsOfKind = std::function<std::vector<SnapshotPart>(plan::VariableKind)>;

// Returns the updates of all parameters that have moments, in the plan's order. `parts` returns a
// rank's parts of the state after `step`. The step must have been applied, not skipped. All ranks
// of `group` must call it together, and get the same result. `moved` is called after each tensor.
Result<StepUpdates> updatesOf(const PartsOfKind &parts, const AdamWStep &step, Communicator &group,
                              const std::function<void()> &moved);

} // namespace lmc
