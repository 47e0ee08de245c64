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
  static constexpr size_t kMaxSteps = 12; // the latest ones are kept

  explicit ExportResults(const std::string &folder) : folder(folder + "/evaluations") {}

  // Reads new results, and removes those of steps that a rewind took back. A folder that cannot be
  // read has no results.
  void update();
  // Returns the results, by training step.
  const std::map<int64_t, EvaluationResults> &steps() const { return kept; }

private:
  std::string folder;
  std::map<int64_t, EvaluationResults> kept;
};

} // namespace lmc
