// Fits the rates of a device spec to measured times of commands, so that the cost model predicts
// them.
//
// A command's predicted time is a launch, plus the largest of the times that the device's units
// need, each of which is work divided by a rate (Roofline.h). The fit assigns each command to the
// rate that limits it. It then sets each rate to the weighted median, over the rate's commands, of
// the rate that would explain the measured time. A command's weight is its predicted part of a
// step; a measured part would give weight to single times that other work on the machine disturbed.
// The fit repeats this until the rates stay the same, because a new rate may leave another command
// limited by something else. A median does not follow single commands that behave unlike all
// others.
//
// At the start, every rate is the highest that any command of its class reached: no lower rate can
// be true, and a rate that is too low would attract commands that other units limit.
//
// The fitted numbers are memory.reachable (memory.bandwidth if it would exceed 1),
// memory.cache_bandwidth, vector.flops, launch.seconds, the `sustained` of matrix products, and for
// attention the clock of a GPU or the rates of the tables. Sizes of tiles, depths and lengths stay
// as they are.
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

// A number of a spec, before and after a fit.
struct FittedNumber {
  std::string key; // "memory.bandwidth", "gemm.bf16.sustained", "attention.0.forward"
  double before = 0, after = 0;
  size_t commands = 0; // number of commands fitted; 0: a command was faster than `before`
};

struct Refit {
  DeviceSpec spec;
  std::vector<FittedNumber> numbers;
};

// Returns the cost model of the measured target for a spec.
using MakeModel = std::function<std::unique_ptr<CostModel>(DeviceSpec)>;

// Returns `spec` with the rates that explain `measured`. A rate that limits no command stays as it
// is, unless a command was faster than it allows.
Refit refit(const DeviceSpec &spec, const std::vector<MeasuredWork> &measured,
            const MakeModel &makeModel);

} // namespace lmc::cost
