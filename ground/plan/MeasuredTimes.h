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
  // seconds[function][command] is the median time of the command's runs. seconds[function] is empty
  // for a function without runs.
  std::vector<std::vector<double>> seconds;
};

// Reads the text of a trace. Errors: `text` is not a trace of `lmc-run --trace`, belongs to another
// plan, or lacks a function that an optimizer step runs.
Result<MeasuredTimes> readMeasuredTimes(const std::string &text, const std::string &path,
                                        const PlanFile &plan);

} // namespace lmc::plan
