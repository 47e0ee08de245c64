// The update of each tensor by a step. The file OUT/updates.jsonl has a line for each step whose
// updates are known: those whose checkpoint or export is written in the background.
#pragma once

#include "runtime/monitor/files/LineFile.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct TensorUpdate {
  std::string name;      // as Hugging Face has it
  bool isMatrix = false; // false for norms and biases
  // L2 norm of the update / L2 norm of the weights before it; absent if these were zero.
  std::optional<double> ratio;
  double weightRms = 0;    // root mean square of the weights after the step
  bool isFinite = true;    // false if a weight or an update is not finite; `ratio` is then absent
  bool hasGradient = true; // false if every gradient so far was zero
};

struct StepUpdates {
  int64_t step = 0;
  double lr = 0;
  std::vector<TensorUpdate> tensors; // in the plan's order
};

// Appends records to updates.jsonl.
class UpdatesWriter {
public:
  // Opens `path` to continue after step `lastStep`, as MetricsWriter::open() does.
  static Result<UpdatesWriter> open(const std::string &path, int64_t lastStep,
                                    const std::function<Result<std::string>()> &undone);

  // Writes the records that an earlier call could not write, and then {"step", "lr",
  // "update_ratio": {TENSOR: RATIO}, "weight_rms": {TENSOR: RMS}}. An absent ratio is null. After
  // an Error they are kept for the next call.
  Result<void> write(const StepUpdates &updates);

private:
  explicit UpdatesWriter(LineFile file) : file(std::move(file)) {}
  LineFile file;
};

} // namespace lmc
