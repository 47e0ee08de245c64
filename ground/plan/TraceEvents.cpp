#include "ground/plan/TraceEvents.h"

#include <fmt/format.h>

#include <set>

using nlohmann::json;

namespace lmc::plan {

// Each track of the trace is a thread: thread 0 has functions, thread 1 + s commands of stream s.
static constexpr int kFunctions = 0;
static int threadOf(uint16_t stream) { return 1 + stream; }

static constexpr double kMicroseconds = 1e6; // in a second

TraceEvents::TraceEvents(const Plan &plan, int process, const std::string &title)
    : plan(plan), process(process) {
  const auto addTrack = [&](int thread, const std::string &name) {
    add("M", "thread_name", {{"name", name}}, {{"tid", thread}});
  };
  add("M", "process_name", {{"name", title}});
  addTrack(kFunctions, "functions");
  std::set<uint16_t> streams;
  for (const Function *function : *plan.functions())
    for (const Command *command : *function->commands())
      streams.insert(command->stream());
  for (uint16_t stream : streams)
    addTrack(threadOf(stream), fmt::format("stream {}", stream));
}

void TraceEvents::add(const char *phase, const std::string &name, json arguments, json more) {
  more.update({{"ph", phase}, {"name", name}, {"pid", process}, {"args", std::move(arguments)}});
  events.push_back(std::move(more));
}

void TraceEvents::addFunction(const std::string &title, double start, double seconds,
                              json arguments) {
  add("X", title, std::move(arguments),
      {{"cat", "function"},
       {"tid", kFunctions},
       {"ts", start * kMicroseconds},
       {"dur", seconds * kMicroseconds}});
}

void TraceEvents::addCommand(const Function &function, uint32_t index, double start,
                             double seconds, json arguments) {
  const Command &command = *function.commands()->Get(index);
  const char *kind = EnumNameCommandBody(command.body_type());
  const std::string source = command.source() ? command.source()->str() : "";
  arguments["function"] = function.name()->str();
  arguments["command"] = index;
  arguments["backward"] = command.backward();
  if (const Launch *launch = command.body_as_Launch())
    arguments["kernel"] = plan.kernels()->Get(launch->kernel())->name()->str();
  add("X", source.empty() ? kind : source, std::move(arguments),
      {{"cat", kind},
       {"tid", threadOf(command.stream())},
       {"ts", start * kMicroseconds},
       {"dur", seconds * kMicroseconds}});
}

void TraceEvents::addCounter(const std::string &name, double start, json values) {
  add("C", name, std::move(values), {{"ts", start * kMicroseconds}});
}

} // namespace lmc::plan
