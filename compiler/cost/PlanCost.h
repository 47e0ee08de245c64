// Predicts the cost of a whole plan on a device, from the estimates of all commands.
//
// Each command starts as soon as the plan's streams allow (plan.fbs, Command.stream). Collectives
// that use the same links, inside nodes or between nodes, run one after the other, even on two
// streams.
//
// A collective that moves data occupies a share of the device's processors (LinkModel::processors
// in DeviceSpec.h). Commands beside it run at 1 - processors of their speed. Beside two
// collectives, both factors apply. The memory bandwidth that a collective takes is ignored.
//
// The time of a function is the sum of the times of stream 0's commands, with their waits. The time
// of an optimizer step is (GAS is the number of micro-steps)
//
//   micro_first + (GAS - 2) micro + micro_last + optimizer     (GAS 1: micro_first + optimizer)
#pragma once

#include "compiler/cost/CostModel.h"

#include "plan_generated.h"

#include <functional>
#include <string>
#include <vector>

namespace lmc::cost {

// A collective in one run of its function. Times count from the start of the function.
struct CollectiveTime {
  uint32_t command = 0;
  double start = 0, end = 0;
  double exposed = 0; // seconds between start and end in which stream 0 waits
};

struct FunctionCost {
  double seconds = 0; // seconds of one run
  uint64_t runsPerStep = 0;
  // The estimates in the order of the plan's commands. The time of a Wait, or of a collective of
  // stream 0, ends when the collective ends. The times of other commands of stream 0 include the
  // delay by collectives that run beside them.
  std::vector<Estimate> commands;
  // Per command: the seconds of the SwiGLU kernel after a library's matrix product (LinearSwiglu,
  // SwigluLinearGrad); else 0.
  std::vector<double> behindProducts;
  std::vector<double> starts; // start of each command, in seconds from the start of the function
  std::vector<CollectiveTime> collectives; // in order
  double slowed = 0; // seconds that the commands take longer because of collectives beside them
};

// The cost of all launches of a kernel in one optimizer step, if no collective runs beside them. If
// a command has one estimate for several kernels, the estimate is divided among these kernels. Each
// share is proportional to the time that the FLOPs and traffic of the kernel would take.
struct KernelCost {
  uint64_t launches = 0;
  double seconds = 0;
  Estimate launch; // the estimate of one launch
};

struct PlanCost {
  std::vector<FunctionCost> functions; // costs in the order of the plan's functions
  std::vector<KernelCost> kernels;     // costs in the order of the plan's kernels
  double stepSeconds = 0;
  double exposedSeconds = 0;  // seconds per step in which the device waits for collectives
  double slowedSeconds = 0;   // seconds per step that commands lose to collectives beside them
  double tokensPerSecond = 0; // tokens per second of one device
  double peakFlops = 0;       // dense peak of the compute dtype in FLOP/s, for MFU
  double mfuCausal = 0, mfuFull = 0;
};

// Which experts the routers choose. Balanced: all experts equally often. SameExperts: every token
// chooses the same experts.
enum class Routing { Balanced, SameExperts };

// Changes the estimate of a command, before it is placed in the time of its function.
using Reprice = std::function<void(const plan::Command &command, Estimate &estimate)>;

PlanCost planCost(const plan::Plan &plan, const CostModel &model,
                  Routing routing = Routing::Balanced, const Reprice &reprice = {});

// Returns the number of experts that a token chooses; 0 if the plan has no experts.
int64_t sameExperts(const plan::Plan &plan);

// Returns the warnings of `model` about the commands of a plan, without repetitions. A warning
// names the model's ops that it concerns.
std::vector<std::string> warningsOf(const plan::Plan &plan, const CostModel &model);

// Returns the work of a command in the form that estimate() takes (Roofline.h).
Work workOf(const plan::Plan &plan, const plan::Command &command,
            Routing routing = Routing::Balanced);

// Returns how many nodes, and devices per node, a group of ranks along the mesh's `axis` has.
Group groupOf(const plan::Plan &plan, plan::Axis axis);

// Returns the text of a setting stored in the plan; "" when it is not stored.
std::string_view settingOf(const plan::Plan &plan, std::string_view key);

} // namespace lmc::cost
