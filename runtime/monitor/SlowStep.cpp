#include "runtime/monitor/SlowStep.h"

#include "ground/support/Median.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace lmc {

static constexpr double kRatio = 1.5, kExcess = 0.1; // seconds
// A cause is named only if it explains at least this share of the step's additional time.
static constexpr double kShare = 0.1;
// A clock below this share of the usual clock is named as a cause: clocks vary by some percent.
static constexpr double kClock = 0.9;
// If a process gets less than this share of its usual processor time, others have taken it.
static constexpr double kLessCpu = 0.75;

std::string SlowStep::text() const {
  std::string text = fmt::format("took {:.3g} s, {:.1f} times the usual {:.3g} s", seconds,
                                 usual > 0 ? seconds / usual : 0, usual);
  if (predictedRatio > 0)
    text += fmt::format(" ({:.3g} times the predicted time)", predictedRatio);
  if (causes.empty())
    return text + "; the cause is not known";
  for (size_t i = 0; i < causes.size(); ++i)
    text += (i == 0 ? ": " : "; ") + causes[i].text;
  return text;
}

std::optional<SlowStep> explainSlowStep(const StepTimes &step, const StepTimes &usual,
                                        const MachineUse &machine, const MachineUse &usualMachine,
                                        double predicted) {
  const double excess = step.seconds - usual.seconds;
  if (step.seconds < kRatio * usual.seconds || excess < kExcess)
    return std::nullopt;
  SlowStep slow{step.seconds, usual.seconds, predicted > 0 ? step.seconds / predicted : 0, {}};
  auto add = [&](const char *name, double seconds, std::string text) {
    slow.causes.push_back({name, std::min(seconds, excess), std::move(text)});
  };

  // First come the causes whose time was measured within the step, such as waiting for data.
  double left = excess; // additional time that no wait explains
  auto addWait = [&](const char *name, double now, double before, const char *text) {
    if (now - before < kShare * excess)
      return;
    left -= now - before;
    add(name, now - before, fmt::format("{} took {:.3g} s", text, now));
  };
  addWait("data", step.data, usual.data, "waiting for data");
  addWait("ranks", step.ranks, usual.ranks, "waiting for other ranks");
  addWait("logs", step.logs, usual.logs, "writing to the console and logs");
  if (step.save - usual.save >= kShare * excess)
    add("save", 0, fmt::format("a save beside it took {:.3g} s", step.save));
  if (step.validation - usual.validation >= kShare * excess)
    add("validation", 0, fmt::format("a validation beside it took {:.3g} s", step.validation));

  // Then come the causes that the use of the machine shows.
  if (const double swapped = machine.swapped - usualMachine.swapped; swapped > 0)
    add("swap", 0, fmt::format("the machine swapped {:.0f} pages: its memory is full", swapped));
  if (const double faults = machine.majorFaults - usualMachine.majorFaults; faults >= 1)
    add("page_faults", 0, fmt::format("{:.0f} page faults read from a disk", faults));
  if (left >= kShare * excess) {
    const double stolen = machine.stolen - usualMachine.stolen;
    const double others = machine.otherCpu - usualMachine.otherCpu;
    // If many processes share a processor, this process waits longer, not more often: ownCpu falls.
    const bool takesTurns =
        machine.involuntary > 2 * usualMachine.involuntary + 10 ||
        (machine.involuntary > 10 && machine.ownCpu < kLessCpu * usualMachine.ownCpu);
    const bool isSlowed = machine.clockGHz > 0 && usualMachine.clockGHz > 0 &&
                          machine.clockGHz < kClock * usualMachine.clockGHz;
    if (stolen >= kShare * left)
      add("hypervisor", stolen,
          fmt::format("the hypervisor took {:.3g} s of the processors", stolen));
    // Other processes are a cause only if this process had to wait for them.
    if (others >= kShare * left && takesTurns)
      add("other_processes", others,
          fmt::format("other processes took {:.3g} s of the processors (this one was interrupted "
                      "{:.0f} times)",
                      others, machine.involuntary));
    if (isSlowed)
      add("clock", step.seconds * (1 - machine.clockGHz / usualMachine.clockGHz),
          fmt::format("the processors' clock was {:.2f} GHz instead of {:.2f} GHz",
                      machine.clockGHz, usualMachine.clockGHz));
    const bool explained = stolen >= kShare * left || (others >= kShare * left && takesTurns);
    const bool computes = machine.ownCpu >= 0.5 * usualMachine.ownCpu;
    if (!explained && !computes)
      add("stopped", left,
          fmt::format("this process did not run (it was stopped, or waited for a disk or a device) "
                      "for about {:.3g} s",
                      left));
    else if (!explained && !isSlowed)
      add("more_computation", left,
          fmt::format("the processors computed for {:.3g} s longer (the memory may be slow, or the "
                      "clock low)",
                      left));
  }
  std::ranges::stable_sort(slow.causes, std::greater<>(), &SlowStepCause::seconds);
  return slow;
}

// Returns the median of a member over `all`.
template <typename Struct>
static double medianOf(const std::deque<Struct> &all, double Struct::*member) {
  std::vector<double> values;
  for (const Struct &each : all)
    values.push_back(each.*member);
  return median(std::move(values));
}

StepTimes SlowStepWatch::usualTimes() const {
  StepTimes usual;
  for (auto member : {&StepTimes::seconds, &StepTimes::data, &StepTimes::ranks, &StepTimes::logs,
                      &StepTimes::save, &StepTimes::validation})
    usual.*member = medianOf(steps, member);
  return usual;
}

MachineUse SlowStepWatch::usualMachine(double seconds) const {
  std::deque<MachineUse> rates; // per second
  for (const MachineUse &use : uses)
    if (use.seconds > 0)
      rates.push_back(use);
  MachineUse usual;
  usual.seconds = seconds;
  if (rates.empty())
    return usual;
  for (auto member : {&MachineUse::ownCpu, &MachineUse::otherCpu, &MachineUse::stolen,
                      &MachineUse::involuntary, &MachineUse::majorFaults, &MachineUse::swapped}) {
    for (MachineUse &rate : rates)
      rate.*member /= rate.seconds;
    usual.*member = seconds * medianOf(rates, member);
  }
  usual.clockGHz = medianOf(rates, &MachineUse::clockGHz);
  return usual;
}

std::optional<SlowStepWatch::Found> SlowStepWatch::observe(const StepTimes &step,
                                                           const MachineUse &machine, double now) {
  if (++seen <= 2)
    return std::nullopt;
  std::optional<Found> found;
  if (steps.size() >= kLeast)
    if (auto slow = explainSlowStep(step, usualTimes(), machine, usualMachine(machine.seconds),
                                    predicted)) {
      const auto isSeen = [](const SlowStepCause &cause) {
        return cause.name == "logs" || cause.name == "save" || cause.name == "validation";
      };
      const bool warns = slow->seconds - slow->usual >= kWarnSeconds &&
                         !(slow->causes.size() > 0 && isSeen(slow->causes.front())) &&
                         (!warned || now - *warned >= kPause);
      if (warns)
        warned = now;
      found = Found{std::move(*slow), warns};
    }
  steps.push_back(step);
  uses.push_back(machine);
  if (steps.size() > kWindow) {
    steps.pop_front();
    uses.pop_front();
  }
  return found;
}

} // namespace lmc
