// Fits the rates of a device spec to measured times of commands.
//
// A command's predicted time is the launch time plus the maximum of the times of the device's
// units. The time of a unit is its work divided by a rate (Roofline.h). The fit assigns each
// command to the rate that limits it. It then sets each rate to the weighted median, over its
// commands, of the rate that would explain the measured time. The weight is the command's predicted
// seconds per step. A new rate may make another rate the limit of a command, so the fit repeats
// this until no rate changes.
//
// At the start, the rates of memory, cache and vector units are the highest that any kernel
// reached: no lower rate can be true.
//
// The fitted numbers are memory.reachable (memory.bandwidth if reachable would exceed 1),
// memory.cache_bandwidth, vector.flops, launch.seconds, the `sustained` of matrix products, and for
// attention the GPU's clock or the rates in the [[attention]] tables.
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
// if a command reached a higher rate.
Refit refit(const DeviceSpec &spec, const std::vector<MeasuredWork> &measured,
            const MakeModel &makeModel);

} // namespace lmc::cost
