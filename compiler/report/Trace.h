// Prints the predicted schedule of an optimizer step, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json_fwd.hpp>

namespace lmc {

// Returns the trace of the functions of an optimizer step, one after the other; a micro-step that
// runs several times appears once. The trace has one track per stream with one event per command, a
// track of the functions, and a counter of live bytes by category. Times are in microseconds and
// never decrease.
nlohmann::json traceJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

} // namespace lmc
