// The results of a run's checkpoint.export_command, read from OUT/evaluations.
#pragma once

#include "ground/support/EvaluationResults.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace lmc {

class ExportResults {
public:
  static constexpr size_t kMaxSteps = 12; // most steps whose results are kept: the latest

  explicit ExportResults(const std::string &folder) : folder(folder + "/evaluations") {}

  // Reads the results that were completed since the last update(), and removes those of steps that
  // a rewind took back. If the folder cannot be read, there are no results.
  void update();
  // Returns the results, by training step.
  const std::map<int64_t, EvaluationResults> &steps() const { return kept; }

private:
  std::string folder;
  std::map<int64_t, EvaluationResults> kept;
};

} // namespace lmc
