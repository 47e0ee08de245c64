#include "runtime/watch/SlowSteps.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace lmc {

static double steadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void SlowSteps::read(int64_t step) {
  samples.push_back({step, machine.read(steadySeconds())});
  if (samples.size() > kKept)
    samples.pop_front();
}

void SlowSteps::begin(int64_t step) {
  moments.push_back({step, steadySeconds(), progress.sums()});
  if (moments.size() > kKept)
    moments.pop_front();
  if (samples.empty() || steadySeconds() - samples.back().counters.time >= kSampleSeconds)
    read(step);
}

void SlowSteps::observe(const StepRecord &record) {
  const double validation = std::exchange(validationSeconds, record.validationSeconds);
  const auto began = std::ranges::find(moments, record.step, &Moment::step);
  if (began == moments.end())
    return;
  const auto next = std::next(began);
  // A step that work follows is reported after its validation and before its save. Others are
  // reported before or after the next one begins.
  const Moment end = next != moments.end() ? *next : Moment{0, steadySeconds(), progress.sums()};
  StepTimes times;
  times.seconds = std::max(0.0, end.time - began->time - record.validationSeconds);
  times.data = record.dataSeconds;
  times.ranks = waitsForRanks ? end.sums.waited - began->sums.waited : 0;
  times.logs = end.sums.logged - began->sums.logged;
  times.save = record.saveSeconds;
  times.validation = validation;

  // A step that may be judged slow is at least 0.1 s long (SlowStep.h).
  if (times.seconds >= 0.1)
    read(record.step + 1);
  // The newest sample from before the step, or else the oldest one.
  auto before = std::find_if(samples.rbegin(), samples.rend(),
                             [&](const Sample &sample) { return sample.step <= record.step; });
  const Sample &from = before != samples.rend() ? *before : samples.front();
  const MachineUse use = samples.back().counters - from.counters;

  const auto found = watch.observe(times, use, steadySeconds());
  if (!found)
    return;
  const SlowStep &slow = found->step;
  if (found->warns)
    console.warning(fmt::format("step {} {}", record.step, slow.text()));
  nlohmann::ordered_json event = {{"step", record.step},
                                  {"seconds", slow.seconds},
                                  {"usual_seconds", slow.usual},
                                  {"causes", nlohmann::ordered_json::array()}};
  if (slow.predictedRatio > 0)
    event["ratio"] = slow.predictedRatio;
  for (const SlowStepCause &cause : slow.causes) {
    nlohmann::ordered_json entry = {{"cause", cause.name}, {"text", cause.text}};
    if (cause.seconds > 0)
      entry["seconds"] = cause.seconds;
    event["causes"].push_back(std::move(entry));
  }
  log.event("slow_step", event);
}

} // namespace lmc
