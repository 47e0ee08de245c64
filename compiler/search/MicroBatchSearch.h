// training.micro_batch_size = "auto": the MBS with the most tokens/s among those that fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lmc {

struct MicroBatchAttempt {
  int64_t size = 0;           // MBS, sequences
  uint64_t peakBytes = 0;     // of the best plan for it, or of the smallest where none fits
  double tokensPerSecond = 0; // of one device, predicted
  bool fits = false;
};

struct MicroBatchResult {
  std::vector<MicroBatchAttempt> attempts; // sizes rise
  size_t best = 0;                         // among the attempts; the first when none fits
};

// Makes a plan for an MBS; nothing when that fails, which ends the search.
using TryMicroBatch = std::function<std::optional<MicroBatchAttempt>(int64_t size)>;

// Tries the divisors of `perDevice` (sequences of a step and device) from 1 on, up to the
// first that does not fit: what a plan holds grows with the MBS. Of equal rates, to a
// billionth, the smaller MBS, which takes less memory. Nothing when an attempt failed.
std::optional<MicroBatchResult> searchMicroBatch(int64_t perDevice, const TryMicroBatch &tryOne);

} // namespace lmc
