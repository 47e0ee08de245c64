#include "runtime/step/StepTrace.h"

#include "ground/plan/Steps.h"
#include "ground/support/File.h"

#include <fmt/format.h>

#include <algorithm>

using nlohmann::json;

namespace lmc {

// Process number in the trace; predicted traces (compiler/report/Trace.cpp) have another one.
static constexpr int kProcess = 2;

StepTrace::StepTrace(const PlanFile &plan, const std::string &device, std::string path,
                     uint64_t steps)
    : plan(plan), device(device), file(std::move(path)), steps(steps),
      events(*plan, kProcess, fmt::format("measured steps on {}", device)) {}

void StepTrace::choose(uint64_t done, uint64_t total) {
  const uint64_t left = total - std::min(done, total), recorded = std::min(steps, left);
  first = done + std::min(kWarmUp, left - recorded) + 1;
  last = first + recorded - 1;
}

void StepTrace::begin(uint64_t step) {
  current = step;
  recording = first <= step && step <= last;
}

bool StepTrace::end() { return std::exchange(recording, false) && current == last; }

// Adds the predicted time, if there is one, and the ratio measured / predicted.
static void addPrediction(json &arguments, double predicted, double measured) {
  if (!(predicted > 0))
    return;
  arguments["predicted_us"] = predicted * 1e6;
  arguments["ratio"] = measured / predicted;
}

Result<void> StepTrace::run(Device &on, Executable &executable, uint32_t index) {
  LMC_TRY(on.synchronize()); // earlier work must not count as time of the function
  const auto now = Clock::now();
  if (!origin)
    origin = now;
  const double start = std::chrono::duration<double>(now - *origin).count();
  LMC_LET(times, on.submitTimed(executable));
  const plan::Function &function = *plan->functions()->Get(index);
  const double seconds = times->empty() ? 0 : times->back().start + times->back().seconds;
  json arguments = {{"step", current}};
  addPrediction(arguments, plan::predictedSeconds(function), seconds);
  events.addFunction(function.name()->str(), start, seconds, std::move(arguments));
  for (uint32_t i = 0; i < times->size(); ++i) {
    const CommandTime &time = (*times)[i];
    json of = {{"step", current}};
    addPrediction(of, function.commands()->Get(i)->predicted_seconds(), time.seconds);
    events.addCommand(function, i, start + time.start, time.seconds, std::move(of));
  }
  return {};
}

Result<void> StepTrace::write() {
  if (!origin)
    return Error{"no step was recorded"};
  json trace = events.trace();
  trace["otherData"] = {{"plan", plan.hash()},
                        {"target", plan->target()->str()},
                        {"device", device},
                        {"first_step", first},
                        {"last_step", last}};
  LMC_TRY(writeTextFile(file, trace.dump() + "\n"));
  written = true;
  return {};
}

} // namespace lmc
