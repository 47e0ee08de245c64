// Records the start, the duration and the predicted duration of each command in some steps, for
// `lmc-run --trace` (docs/running.md).
#pragma once

#include "ground/plan/TraceEvents.h"
#include "runtime/device/FunctionObserver.h"

#include <chrono>
#include <optional>
#include <string>

namespace lmc {

class StepTrace final : public FunctionObserver {
public:
  // Makes a trace of `steps` steps (at least 1), which write() writes to `path`.
  StepTrace(const PlanFile &plan, const std::string &device, std::string path, uint64_t steps);

  // Chooses the steps to record. `done` steps are done, and `total` is the number of the last step.
  // The chosen steps follow a warm-up of kWarmUp steps, or a shorter one if the run ends too early.
  void choose(uint64_t done, uint64_t total);
  static constexpr uint64_t kWarmUp = 2;

  // Must be called before and after the work of each step; `step` counts from 1. end() returns true
  // if this was the last step to record.
  void begin(uint64_t step);
  bool end();
  bool isRecording() const override { return recording; }

  // Runs function `index` command by command, and adds the commands to the trace.
  Result<void> run(Device &device, Executable &executable, uint32_t index) override;

  // Writes the recorded steps. Error: none was recorded, or the file cannot be written.
  Result<void> write();
  bool isWritten() const { return written; }
  const std::string &path() const { return file; }

private:
  using Clock = std::chrono::steady_clock;

  const PlanFile &plan;
  const std::string device, file;
  const uint64_t steps;
  uint64_t first = 0, last = 0, current = 0; // steps
  bool recording = false, written = false;
  std::optional<Clock::time_point> origin; // the start of the first recorded function
  plan::TraceEvents events;
};

} // namespace lmc
