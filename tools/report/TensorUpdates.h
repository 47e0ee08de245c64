// The updates of each tensor by the steps of a run, from OUT/updates.jsonl.
#pragma once

#include "tools/report/GrowingFile.h"
#include "tools/report/StepGroups.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

class TensorUpdates {
public:
  static constexpr size_t kMaxTensors = 1024; // only the first tensors are kept
  static constexpr size_t kMaxName = 400;     // maximum bytes of a tensor's name

  struct Tensor {
    std::string name;
    // L2 norm of the update / L2 norm of the weights before it. Absent if the weights were zero.
    StepSeries ratio;
    std::optional<double> firstRms, lastRms; // RMS of weights in the first and latest line
  };

  explicit TensorUpdates(const std::string &folder) : file(folder + "/updates.jsonl") {}

  // Reads the lines that were added since the last call. Counts damaged lines and ignores them.
  // Returns false if the file no longer has what was read before: only a new object can read it.
  Result<bool> update();
  const std::vector<Tensor> &tensors() const { return kept; } // as ordered in the file
  const std::vector<int64_t> &groupSteps() const { return groups.steps(); }
  int64_t lastStep() const { return groups.lastStep(); } // 0: no line
  size_t leftOut() const { return tooMany; } // tensors of the latest line that are not kept
  // Returns the number of ignored lines, including an incomplete last line.
  int64_t damaged() const { return damagedLines + file.hasPart(); }

private:
  void read(std::string_view line);
  Tensor *find(const std::string &name);

  GrowingFile file;
  std::vector<Tensor> kept;
  std::map<std::string, size_t> places; // index in `kept`, by name
  StepGroups groups;
  int64_t damagedLines = 0;
  size_t tooMany = 0;
};

} // namespace lmc
