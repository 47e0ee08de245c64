#include "runtime/train/StepBatches.h"

#include <numeric>

namespace lmc {

StepBatches::StepBatches(const DataSource &source, uint64_t batchSize, uint64_t first, int workers)
    : pieces(batchSize / std::gcd(batchSize, first)),
      loader(source, batchSize / pieces, first / (batchSize / pieces), workers) {}

Result<BatchLoader::Batch> StepBatches::next() {
  auto batch = loader.next();
  for (uint64_t piece = 1; batch && piece < pieces; ++piece) {
    auto more = loader.next();
    if (!more)
      return more;
    batch->tokens.insert(batch->tokens.end(), more->tokens.begin(), more->tokens.end());
    batch->targets.insert(batch->targets.end(), more->targets.begin(), more->targets.end());
    batch->starts.insert(batch->starts.end(), more->starts.begin(), more->starts.end());
    batch->validTargets += more->validTargets;
  }
  return batch;
}

} // namespace lmc
