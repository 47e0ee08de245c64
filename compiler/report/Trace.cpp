#include "compiler/report/Trace.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/analysis/Memory.h"
#include "compiler/kernels/Target.h"

#include <fmt/format.h>

#include <set>

using nlohmann::json;

namespace lmc {

// The tracks are threads of one process in the trace: thread 0 shows the functions, thread 1 + s
// shows stream s.
constexpr int kProcess = 1;

static json nameTrack(int thread, const std::string &name) {
  return {{"ph", "M"},
          {"name", "thread_name"},
          {"pid", kProcess},
          {"tid", thread},
          {"args", {{"name", name}}}};
}

json traceJson(const plan::Plan &plan, const cost::DeviceSpec &spec) {
  cost::PlanCost cost =
      cost::planCost(plan, *codegen::costModelOf(plan.target()->string_view(), spec));
  MemoryTimeline memory = memoryTimeline(plan);
  json events = json::array();
  events.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", kProcess},
                    {"args", {{"name", fmt::format("predicted step on {}", spec.name)}}}});
  events.push_back(nameTrack(0, "functions"));
  std::set<uint16_t> streams;
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands())
      streams.insert(command->stream());
  for (uint16_t stream : streams)
    events.push_back(nameTrack(1 + stream, fmt::format("stream {}", stream)));

  double now = 0; // the current time in microseconds
  for (unsigned f = 0; f < plan.functions()->size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    const cost::FunctionCost &entry = cost.functions[f];
    if (entry.runsPerStep == 0)
      continue;
    std::string name = function.name()->str();
    if (entry.runsPerStep > 1)
      name += fmt::format(" (one of {})", entry.runsPerStep);
    events.push_back({{"ph", "X"},
                      {"name", name},
                      {"cat", "function"},
                      {"pid", kProcess},
                      {"tid", 0},
                      {"ts", now},
                      {"dur", entry.seconds * 1e6}});
    for (unsigned c = 0; c < entry.commands.size(); ++c) {
      const plan::Command &command = *function.commands()->Get(c);
      const cost::Estimate &estimate = entry.commands[c];
      json live = json::object();
      for (size_t category = 0; category < kCategories; ++category)
        if (uint64_t bytes = memory.state[category] + memory.functions[f].live[c][category])
          live[categoryName(plan::Category(category))] = bytes;
      events.push_back({{"ph", "C"},
                        {"name", "live bytes"},
                        {"pid", kProcess},
                        {"ts", now},
                        {"args", std::move(live)}});
      std::string title = command.source() ? command.source()->str() : "";
      json args = {{"command", c},
                   {"bound", cost::boundName(estimate.bound)},
                   {"bytes", uint64_t(estimate.bytes)},
                   {"flops", estimate.flops},
                   {"backward", command.backward()}};
      if (const plan::Launch *launch = command.body_as_Launch())
        args["kernel"] = plan.kernels()->Get(launch->kernel())->name()->str();
      events.push_back(
          {{"ph", "X"},
           {"name", title.empty() ? plan::EnumNameCommandBody(command.body_type()) : title},
           {"cat", plan::EnumNameCommandBody(command.body_type())},
           {"pid", kProcess},
           {"tid", 1 + command.stream()},
           {"ts", now},
           {"dur", estimate.seconds * 1e6},
           {"args", std::move(args)}});
      now += estimate.seconds * 1e6;
    }
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

} // namespace lmc
