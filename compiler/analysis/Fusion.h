// What fusion left: kernels per layer, and memory traffic beside its floor.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string_view>

namespace lmc {

// The function that stands for a micro-step: micro, or without it micro_last or
// micro_first; -1 for a plan that has none of them.
int microStep(const plan::Plan &plan);

// The command with which a function's backward pass begins; the number of commands in one
// that has none. All that follows belongs to it: sums of gradients are not marked one by one.
unsigned firstBackward(const plan::Function &function);

// The layer that a command's source or a slice's name is of, "layers.N/..."; -1 outside of layers.
int layerOf(std::string_view source);
int layerOf(const plan::Command &command);

// The section `fusion` of the report (docs/explain.md), with what the compiler said of it.
nlohmann::json fusionReport(const plan::Plan &plan, const cost::DeviceSpec &spec,
                            const nlohmann::json &said);

} // namespace lmc
