// Fits the rates of a device spec to measured times of commands.
//
// A command's predicted time is the launch time plus the time of the device's slowest unit
// (Roofline.h). The time of a unit is its work divided by a rate. The fit assigns each command to
// the rate that limits it, and computes the rate that would explain the command's measured time.
// Each rate is then set to the weighted median of these values of its commands. The weights are
// predicted seconds per step. With the new rates, other rates may limit a command, so the fit
// repeats until none changes.
//
// The fit starts from the highest rates of memory, cache and vector units that any kernel reached,
// because the true rates cannot be lower.
//
// The fitted numbers are memory.reachable (memory.bandwidth if reachable would exceed 1),
// memory.cache_bandwidth, vector.flops, launch.seconds, and the `sustained` of matrix products. For
// attention, they are the GPU's clock or the rates in the [[attention]] tables.
#pragma once

#include "compiler/cost/CostModel.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmc::cost {

// A measured command, or several that do the same work.
struct MeasuredWork {
  Work work;
  double seconds = 0; // seconds of one run
  double runs = 1;    // number of runs in an optimizer step
};

struct FittedNumber {
  std::string key; // "memory.bandwidth", "gemm.bf16.sustained", "attention.0.forward"
  double before = 0, after = 0;
  size_t commands = 0; // number of commands fitted; if 0, `after` is the highest rate reached
};

struct Refit {
  DeviceSpec spec;
  std::vector<FittedNumber> numbers;
};

// Returns the cost model of the measured target for a spec.
using MakeModel = std::function<std::unique_ptr<CostModel>(DeviceSpec)>;

// Returns `spec` with rates that explain `measured`. If a rate limits no command, it changes only
// if a command reached a higher rate.
Refit refit(const DeviceSpec &spec, const std::vector<MeasuredWork> &measured,
            const MakeModel &makeModel);

} // namespace lmc::cost
