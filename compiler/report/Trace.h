// The predicted schedule of a step, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json.hpp>

namespace lmc {

// The functions of a step one after another (the repeated micro-step once): a track for
// each stream with an event for each command, a track of the functions, and a counter of
// live bytes by category. Times in microseconds, never going back.
nlohmann::json traceJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

} // namespace lmc
