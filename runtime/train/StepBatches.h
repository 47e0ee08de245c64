// The samples of each optimizer step, in order, loaded in advance.
#pragma once

#include "runtime/data/DataSource.h"

#include <cstdint>
#include <memory>

namespace lmc {

// Batch k holds samples [first + k * batchSize, first + (k + 1) * batchSize). Any `first` is
// allowed, so that a run may resume with another batch size.
class StepBatches {
public:
  // `source` must outlive this object.
  StepBatches(const DataSource &source, uint64_t batchSize, uint64_t first, int workers);
  Result<BatchLoader::Batch> next();

private:
  // A BatchLoader counts in whole batches of its own size. Each batch is therefore loaded in pieces
  // of gcd(batchSize, first) samples: in one piece if the batch size has not changed.
  uint64_t pieces;
  BatchLoader loader;
};

} // namespace lmc
