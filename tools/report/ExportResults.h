// What the command for exports has found in each export of a run: OUT/evaluations.
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

  // Reads the results that are complete since the last call, and forgets those that were taken
  // back. A folder that cannot be read has no results.
  void update();
  // By step.
  const std::map<int64_t, EvaluationResults> &steps() const { return kept; }

private:
  std::string folder;
  std::map<int64_t, EvaluationResults> kept;
};

} // namespace lmc
