// Watches for steps that take longer than usual (monitor/SlowStep.h). The host measures a step from
// its begin to the begin of the next step, and subtracts the time of validations.
#include "ground/plan/Steps.h"
#include "ground/plan/TargetRules.h"
#include "runtime/monitor/SlowStep.h"
#include "runtime/watch/Watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

namespace lmc {
namespace {

double steadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class SlowSteps final : public Watch {
public:
  // `predicted`: the plan's prediction of a step's seconds, or 0. `waitsForRanks`: true if
  // Progress::Sums::waited counts waits for other ranks, false if it counts waits for the device.
  SlowSteps(double predicted, bool waitsForRanks, Progress &progress)
      : judge(predicted), waitsForRanks(waitsForRanks), progress(progress) {}

  void begins(int64_t step) override {
    moments.push_back({step, steadySeconds(), progress.sums()});
    if (moments.size() > kKept)
      moments.pop_front();
    if (samples.empty() || steadySeconds() - samples.back().counters.time >= kSampleSeconds)
      read(step);
  }

  WatchFindings reported(const StepRecord &record) override {
    const double validation = std::exchange(validationSeconds, record.validationSeconds);
    const auto began = std::ranges::find(moments, record.step, &Moment::step);
    if (began == moments.end())
      return {};
    const auto next = std::next(began);
    // If the next step has begun already, this step ended at that moment. Otherwise, it ends now.
    const Moment end = next != moments.end() ? *next : Moment{0, steadySeconds(), progress.sums()};
    StepTimes times;
    times.seconds = std::max(0.0, end.time - began->time - record.validationSeconds);
    times.data = record.dataSeconds;
    times.ranks = waitsForRanks ? end.sums.waited - began->sums.waited : 0;
    times.logs = end.sums.logged - began->sums.logged;
    times.save = record.saveSeconds;
    times.validation = validation;

    // A step of less than 0.1 s is never slow (SlowStep.h), so it needs no sample.
    if (times.seconds >= 0.1)
      read(record.step + 1);
    // Takes the latest sample from before this step. Without one, takes the oldest sample.
    auto before = std::find_if(samples.rbegin(), samples.rend(),
                               [&](const Sample &sample) { return sample.step <= record.step; });
    const Sample &from = before != samples.rend() ? *before : samples.front();
    const MachineUse use = samples.back().counters - from.counters;

    const auto found = judge.observe(times, use, steadySeconds());
    if (!found)
      return {};
    const SlowStep &slow = found->step;
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
    std::string warning = found->warns ? fmt::format("step {} {}", record.step, slow.text()) : "";
    return {{.warning = std::move(warning), .event = "slow_step", .facts = std::move(event)}};
  }

private:
  // Each step has a Moment, but not each has a Sample, because a Sample reads files in /proc.
  struct Moment {
    int64_t step = 0;
    double time = 0; // seconds
    Progress::Sums sums;
  };
  struct Sample {
    int64_t step = 0;
    MachineCounters counters;
  };
  static constexpr double kSampleSeconds = 0.25;
  static constexpr size_t kKept = 8;

  void read(int64_t step) {
    samples.push_back({step, machine.read(steadySeconds())});
    if (samples.size() > kKept)
      samples.pop_front();
  }

  SlowStepWatch judge;
  MachineReader machine;
  const bool waitsForRanks;
  Progress &progress;
  std::deque<Moment> moments;   // the latest
  std::deque<Sample> samples;   // the latest
  double validationSeconds = 0; // validation time after the previous step
};

} // namespace

Result<std::unique_ptr<Watch>> watchSlowSteps(const WatchedRun &run) {
  const plan::Plan &plan = **run.session.plan;
  return makeWatch<SlowSteps>(plan::predictedStepSeconds(plan), plan::computesOnHost(plan),
                              run.session.world.progress());
}

} // namespace lmc
