// Decides from which source each block of a run's stream comes. For every n, the first n blocks
// divide nearly by the weights: |count(source, n) - n * weight / sum of weights| < 1. The method is
// R. Tijdeman's, "The chairman assignment problem", Discrete Mathematics 32 (1980). For k sources,
// the difference is at most 1 - 1 / (2k - 2), the smallest possible bound. The order of the sources
// repeats: with the weights 0.5 and 0.75, a period has 2 blocks of one source and 3 of the other.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

class Mixture {
public:
  // Error: that of sharesOfWeights().
  static Result<Mixture> make(const std::vector<double> &weights);

  struct Place {
    uint32_t source;
    uint64_t index; // index of the block among the blocks of its source
  };
  Place operator()(uint64_t block) const;

  // Returns the number of the source's blocks among the first `blocks` blocks.
  uint64_t count(uint32_t source, uint64_t blocks) const;

  uint64_t period() const { return sources.size(); } // blocks
  // Returns the number of the source's blocks in a period.
  uint64_t perPeriod(uint32_t source) const { return shares[source]; }

private:
  // Row i of `counts` counts each source's blocks before block i * kStride; count() adds the rest.
  static constexpr uint64_t kStride = 256;

  std::vector<uint64_t> shares;  // blocks of each source in a period
  std::vector<uint16_t> sources; // source of each block of a period
  std::vector<uint32_t> counts;  // [period / kStride + 1, sources]: numbers of blocks
};

} // namespace lmc
