// training.micro_batch_size = "auto" selects the micro-batch size (MBS) with the most tokens/s
// among those whose plans fit the memory budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lmc {

struct MicroBatchAttempt {
  int64_t size = 0;           // the micro-batch size, in sequences
  uint64_t peakBytes = 0;     // peak of the best plan that fits, else of the smallest plan
  double tokensPerSecond = 0; // predicted, of one device
  bool fits = false;
};

struct MicroBatchResult {
  std::vector<MicroBatchAttempt> attempts; // in order of rising size
  size_t best = 0;                         // index into `attempts`; 0 if no size fits
};

// Makes a plan for a micro-batch size. Returns nullopt after an error, which ends the search.
using TryMicroBatch = std::function<std::optional<MicroBatchAttempt>(int64_t size)>;

// Tries the divisors of `perDevice` (sequences per optimizer step and device), smallest first, and
// stops at the first that does not fit, because larger sizes need more bytes. If tokens/s of two
// sizes differ by less than a billionth, the smaller size wins. Returns nullopt if `tryOne` does.
std::optional<MicroBatchResult> searchMicroBatch(int64_t perDevice, const TryMicroBatch &tryOne);

} // namespace lmc
