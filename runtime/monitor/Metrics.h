// OUT/metrics.jsonl: one JSON object per optimizer step, for plots and tests.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

// The numbers of a finished step. Numbers that are not finite are written as null.
struct StepRecord {
  int64_t step = 0; // from 1
  double loss = 0;  // mean over the step's valid targets
  double lr = 0;
  double gradNorm = 0;        // before clipping
  double updateRatio = 0;     // |update| / |parameters|
  uint64_t tokens = 0;        // trained on so far, including this step
  double tokensPerSecond = 0; // of this step
  double mfuCausal = 0;       // model FLOPs utilisation, only unmasked scores counted
  double mfuFull = 0;         // the same with all attention scores counted
  double stepSeconds = 0;     // without validation and checkpoints
  uint64_t memoryBytes = 0;   // of the device
  bool skipped = false;       // the optimizer left the state unchanged
  std::optional<double> validationLoss;
};

// Appends records. If the disk is full, no record is lost and no partial line remains: records that
// could not be written are kept and written before the next record.
class MetricsWriter {
public:
  // Opens `path` to continue after step `lastStep`. The file is cut before the first line that is
  // the record of a later step or not a whole JSON object (a killed run may leave one).
  static Result<MetricsWriter> open(const std::string &path, int64_t lastStep);

  MetricsWriter(MetricsWriter &&other) noexcept;
  MetricsWriter &operator=(MetricsWriter &&) = delete;
  ~MetricsWriter();

  // An Error means that records are kept back for now.
  Result<void> write(const StepRecord &record);

private:
  MetricsWriter(int fd, std::string path, uint64_t end) : fd(fd), path(std::move(path)), end(end) {}
  int fd = -1;
  std::string path;
  uint64_t end = 0;    // bytes of whole lines in the file
  std::string pending; // whole lines that are not in the file yet
};

} // namespace lmc
