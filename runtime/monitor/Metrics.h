// OUT/metrics.jsonl: one JSON object per optimizer step, for plots and tests.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

// What is known of a step once it is done. Numbers that are not finite become
// null in the file.
struct StepRecord {
  int64_t step = 0; // from 1
  double loss = 0;  // mean over the step's valid targets
  double lr = 0;
  double gradNorm = 0;        // before clipping
  double updateRatio = 0;     // |update| / |parameters|
  uint64_t tokens = 0;        // trained on so far, this step included
  double tokensPerSecond = 0; // of this step
  double mfuCausal = 0;       // of the peak, attention counted as causal
  double mfuFull = 0;         // of the peak, attention counted as full squares
  double stepSeconds = 0;     // without validation and checkpoint
  uint64_t memoryBytes = 0;   // of the device
  bool skipped = false;       // the optimizer left all state as it was
  std::optional<double> validationLoss;
};

// Appends records. A disk that is full costs no step and leaves no half line:
// what could not be written is kept and written before the next record.
class MetricsWriter {
public:
  // Opens `path` to go on after step `lastStep`: it is cut at the first line of a
  // later step, or that is no whole JSON line (a killed run may leave one).
  static Result<MetricsWriter> open(const std::string &path, int64_t lastStep);

  MetricsWriter(MetricsWriter &&other) noexcept;
  MetricsWriter &operator=(MetricsWriter &&) = delete;
  ~MetricsWriter();

  // An Error says that records are held back for now.
  Result<void> write(const StepRecord &record);

private:
  MetricsWriter(int fd, std::string path, uint64_t end) : fd(fd), path(std::move(path)), end(end) {}
  int fd = -1;
  std::string path;
  uint64_t end = 0;    // bytes of whole lines in the file
  std::string pending; // whole lines not in the file yet
};

} // namespace lmc
