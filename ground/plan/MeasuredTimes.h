// Reads the measured times of a plan's commands from a trace that `lmc-run --trace` wrote.
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::plan {

struct MeasuredTimes {
  std::string device;
  uint64_t firstStep = 0, lastStep = 0;
  // seconds[function][command] is the median of the command's runs. seconds[function] is empty for
  // a function that was not run.
  std::vector<std::vector<double>> seconds;
};

// Reads the text of a trace. Errors: the text is no such trace, is of another plan, or lacks a
// function of an optimizer step.
Result<MeasuredTimes> readMeasuredTimes(const std::string &text, const std::string &path,
                                        const PlanFile &plan);

} // namespace lmc::plan
