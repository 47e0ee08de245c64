// The samples of each optimizer step, in order, loaded ahead of time.
#pragma once

#include "runtime/data/DataSource.h"

#include <cstdint>
#include <memory>

namespace lmc {

// Batch k holds samples [first + k * batchSize, first + (k + 1) * batchSize), for
// any `first`: a run may go on with another batch size where it stopped.
class StepBatches {
public:
  // `source` must outlive this.
  StepBatches(const DataSource &source, uint64_t batchSize, uint64_t first, int workers);
  Result<BatchLoader::Batch> next();

private:
  // A loader counts in whole batches of its own size, so it loads pieces of
  // gcd(batchSize, first) samples; with an unchanged batch size that is one.
  uint64_t pieces;
  BatchLoader loader;
};

} // namespace lmc
