// Tells of steps that took longer than usual (runtime/monitor/SlowStep.h): an event `slow_step`
// for each, and now and then a warning. It measures on this rank, in the time of the host: from
// before the batch of a step is read to before that of the next one, without validations and saves.
#pragma once

#include "runtime/comm/Progress.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/SlowStep.h"

#include <deque>

namespace lmc {

class SlowSteps {
public:
  // `predicted`: seconds that the plan predicts of a step, or 0. `waitsForRanks`: what
  // Progress::Sums::waited has is for other ranks, and not for a device.
  SlowSteps(double predicted, bool waitsForRanks, Progress &progress, Console &console, RunLog &log)
      : watch(predicted), waitsForRanks(waitsForRanks), progress(progress), console(console),
        log(log) {}

  // Must be called before each step is enqueued.
  void begin(int64_t step);

  // Is given each step when its results are known.
  void observe(const StepRecord &record);

private:
  // What was measured before a step. Counters of the machine are read at most every kSampleSeconds,
  // because each reading opens files in /proc.
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

  void read(int64_t step);

  SlowStepWatch watch;
  MachineReader machine;
  const bool waitsForRanks;
  Progress &progress;
  Console &console;
  RunLog &log;
  std::deque<Moment> moments;   // the latest
  std::deque<Sample> samples;   // the latest
  double validationSeconds = 0; // after the step before
};

} // namespace lmc
