// The predicted schedule of a step, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json.hpp>

namespace lmc {

// Returns the functions of a step one after another, with the repeated micro-step once. There is
// one track per stream with an event per command, a track of the functions, and a counter of live
// bytes by category. Times are in microseconds and never decrease.
nlohmann::json traceJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

} // namespace lmc
