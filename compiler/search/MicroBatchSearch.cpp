#include "compiler/search/MicroBatchSearch.h"

using namespace lmc;

std::optional<MicroBatchResult> lmc::searchMicroBatch(int64_t perDevice,
                                                      const TryMicroBatch &tryOne) {
  constexpr double kEqual = 1e-9;
  MicroBatchResult result;
  for (int64_t size = 1; size <= perDevice; ++size) {
    if (perDevice % size != 0)
      continue;
    std::optional<MicroBatchAttempt> attempt = tryOne(size);
    if (!attempt)
      return std::nullopt;
    result.attempts.push_back(*attempt);
    if (!attempt->fits)
      break;
    const MicroBatchAttempt &best = result.attempts[result.best];
    if (attempt->tokensPerSecond > best.tokensPerSecond * (1 + kEqual))
      result.best = result.attempts.size() - 1;
  }
  return result;
}
