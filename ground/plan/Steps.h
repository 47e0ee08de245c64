// The number of times that an optimizer step runs each function of a plan, and the predicted time.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <string_view>

namespace lmc::plan {

// Returns the number of times that an optimizer step runs the function with this name.
uint64_t runsPerStep(std::string_view function, uint64_t gradientAccumulationSteps);

// Return the predicted seconds of a run of a function, and of an optimizer step; 0 if there is no
// prediction. Only the times of stream 0 count, which include its waits for other streams.
double predictedSeconds(const Function &function);
double predictedStepSeconds(const Plan &plan);

} // namespace lmc::plan
