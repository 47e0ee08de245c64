// The result of fusion in a plan: kernels per layer, and memory traffic compared with its minimum.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json_fwd.hpp>

namespace lmc {

// Returns the index of the function that represents a micro-step: micro, else micro_last, else
// micro_first; -1 if there is none.
int microStep(const plan::Plan &plan);

// Returns the index at which a function's backward pass starts: its first command on stream 0 whose
// field `backward` is true. If there is none, returns the number of commands. All later commands
// belong to the backward pass, even if their field `backward` is false.
unsigned firstBackward(const plan::Function &function);

// Returns `said`, the compiler's report "fusion", with additional figures (docs/explain.md).
nlohmann::json fusionReport(const plan::Plan &plan, const cost::DeviceSpec &spec,
                            const nlohmann::json &said);

} // namespace lmc
