// Loads the samples of each optimizer step, in order and in advance.
#pragma once

#include "runtime/data/DataSource.h"

#include <cstdint>
#include <memory>

namespace lmc {

// Returns batches of samples: batch k holds samples [first + k * batchSize, first + (k + 1) *
// batchSize). `first` need not be a multiple of batchSize, so a run may resume with another batch
// size.
class StepBatches {
public:
  // `source` must outlive this object.
  StepBatches(const DataSource &source, uint64_t batchSize, uint64_t first, int workers);
  Result<BatchLoader::Batch> next();

private:
  // A BatchLoader starts only at a multiple of its batch size. Each batch is therefore loaded in
  // pieces of gcd(batchSize, first) samples, which is one piece if the batch size has not changed.
  uint64_t pieces;
  BatchLoader loader;
};

} // namespace lmc
