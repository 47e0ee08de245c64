#include "compiler/report/Explain.h"

#include "compiler/analysis/Memory.h"
#include "compiler/cost/PlanCost.h"
#include "compiler/kernels/Target.h"
#include "ground/plan/TraceEvents.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

using nlohmann::json;

namespace lmc {

// Measured traces (runtime/step/StepTrace.cpp) have another process id. So a viewer can show a
// measured and a predicted trace together.
constexpr int kProcess = 1;

json traceJson(const plan::Plan &plan, const cost::DeviceSpec &spec) {
  cost::PlanCost cost =
      cost::planCost(plan, *codegen::costModelOf(plan.target()->string_view(), spec));
  MemoryTimeline memory = memoryTimeline(plan);
  plan::TraceEvents events(plan, kProcess, fmt::format("predicted step on {}", spec.name));
  double begin = 0; // start of the function, in seconds
  for (unsigned f = 0; f < plan.functions()->size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    const cost::FunctionCost &entry = cost.functions[f];
    if (entry.runsPerStep == 0)
      continue;
    std::string name = function.name()->str();
    if (entry.runsPerStep > 1)
      name += fmt::format(" (one of {})", entry.runsPerStep);
    events.addFunction(name, begin, entry.seconds);
    for (unsigned c = 0; c < entry.commands.size(); ++c) {
      const cost::Estimate &estimate = entry.commands[c];
      const double start = begin + entry.starts[c];
      json live = json::object();
      for (size_t category = 0; category < kCategories; ++category)
        if (uint64_t bytes = memory.state[category] + memory.functions[f].live[c][category])
          live[categoryName(plan::Category(category))] = bytes;
      if (function.commands()->Get(c)->stream() == 0)
        events.addCounter("live bytes", start, std::move(live));
      events.addCommand(function, c, start, estimate.seconds,
                        {{"bound", cost::boundName(estimate.bound)},
                         {"bytes", uint64_t(estimate.bytes)},
                         {"flops", estimate.flops}});
    }
    begin += entry.seconds;
  }
  return events.trace();
}

} // namespace lmc
