// The file OUT/metrics.jsonl has one JSON object per optimizer step, for plots and tests.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

// The measurements of one optimizer step. Numbers that are not finite are written as null.
struct StepRecord {
  int64_t step = 0; // number of the step, from 1
  double loss = 0;  // mean over the step's targets that have a loss
  double lr = 0;
  double gradNorm = 0;        // L2 norm of the gradient before clipping
  double updateRatio = 0;     // L2 norm of the update / L2 norm of the parameters
  uint64_t tokens = 0;        // tokens trained on so far, including this step
  double tokensPerSecond = 0; // of this step
  double mfuCausal = 0;       // MFU with only unmasked attention scores counted
  double mfuFull = 0;         // MFU with all attention scores counted
  double stepSeconds = 0;     // without validation and checkpoints
  uint64_t memoryBytes = 0;   // bytes of device memory
  bool skipped = false;       // true if the optimizer left the state unchanged
  std::optional<double> validationLoss;
};

// Appends records to a file. If the disk is full, no record is lost and no partial line remains: a
// record that could not be written is kept and written before the next one.
class MetricsWriter {
public:
  // Opens `path` to continue after step `lastStep`. The file is cut before the first line that is
  // the record of a later step or not a whole JSON object (a killed run may leave such a line).
  static Result<MetricsWriter> open(const std::string &path, int64_t lastStep);

  MetricsWriter(MetricsWriter &&other) noexcept;
  MetricsWriter &operator=(MetricsWriter &&) = delete;
  ~MetricsWriter();

  // Writes the records that were kept, and then `record`. After an Error they are kept for the next
  // call.
  Result<void> write(const StepRecord &record);

private:
  MetricsWriter(int fd, std::string path, uint64_t end) : fd(fd), path(std::move(path)), end(end) {}
  int fd = -1;
  std::string path;
  uint64_t end = 0;    // bytes of whole lines in the file
  std::string pending; // whole lines that are not in the file yet
};

} // namespace lmc
