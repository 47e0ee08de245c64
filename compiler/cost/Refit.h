// Fits the rates of a device spec to measured times of commands.
//
// A command's predicted time is a launch, plus the largest of the times that the device's units
// need, each of which is work divided by a rate (Roofline.h). The fit assigns each command to the
// rate that limits it. It then sets each rate to the weighted median, over its commands, of the
// rate that would explain the measured time. The weight is the command's predicted part of a step.
// A new rate may make something else the limit of a command, so the fit repeats this until no rate
// changes.
//
// At the start, every rate is the highest that any command of its class reached: no lower rate can
// be true.
//
// The fitted numbers are memory.reachable (memory.bandwidth if it would exceed 1),
// memory.cache_bandwidth, vector.flops, launch.seconds, the `sustained` of matrix products, and for
// attention the clock of a GPU or the rates of the tables.
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
  size_t commands = 0; // number of commands fitted; 0: a command was faster than `before`
};

struct Refit {
  DeviceSpec spec;
  std::vector<FittedNumber> numbers;
};

// Returns the cost model of the measured target for a spec.
using MakeModel = std::function<std::unique_ptr<CostModel>(DeviceSpec)>;

// Returns `spec` with the rates that explain `measured`. A rate that limits no command changes only
// if a command was faster than it allows.
Refit refit(const DeviceSpec &spec, const std::vector<MeasuredWork> &measured,
            const MakeModel &makeModel);

} // namespace lmc::cost
