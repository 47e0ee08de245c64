// training.micro_batch_size = "auto": the micro-batch size (MBS) with the most tokens/s among those
// that fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lmc {

struct MicroBatchAttempt {
  int64_t size = 0;           // the micro-batch size, in sequences
  uint64_t peakBytes = 0;     // of the best plan that fits, else of the smallest plan
  double tokensPerSecond = 0; // predicted, of one device
  bool fits = false;
};

struct MicroBatchResult {
  std::vector<MicroBatchAttempt> attempts; // sizes rise
  size_t best = 0;                         // index into `attempts`; 0 when none fits
};

// Makes a plan for a micro-batch size. Returns nothing when that fails, which ends the search.
using TryMicroBatch = std::function<std::optional<MicroBatchAttempt>(int64_t size)>;

// Tries the divisors of `perDevice` (sequences per step and device) in rising order up to the first
// that does not fit, because a plan's bytes grow with the micro-batch size. If two rates differ by
// less than a billionth, the smaller size is better, as it takes less memory. Returns nothing when
// an attempt failed.
std::optional<MicroBatchResult> searchMicroBatch(int64_t perDevice, const TryMicroBatch &tryOne);

} // namespace lmc
