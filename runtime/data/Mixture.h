// The source from which each block of a run's stream comes, for sources with weights.
//
// At every prefix of the stream, the blocks of a source differ by less than one from the source's
// share: |count(source, n) - n * weight / sum of weights| < 1. The order is that of R. Tijdeman,
// "The chairman assignment problem", Discrete Mathematics 32 (1980), which keeps the difference at
// most 1 - 1 / (2k - 2) for k sources, the least possible bound. It repeats after a period, because
// weights are decimal numbers; a table of one period gives any block of it at once.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

class Mixture {
public:
  // Errors: those of sharesOfWeights().
  static Result<Mixture> make(const std::vector<double> &weights);

  struct Place {
    uint32_t source;
    uint64_t index; // number of the block among those of its source
  };
  Place operator()(uint64_t block) const;

  // Returns how many of the first `blocks` blocks belong to the source.
  uint64_t count(uint32_t source, uint64_t blocks) const;

  uint64_t period() const { return sources.size(); } // blocks
  // Returns the source's blocks in a period.
  uint64_t perPeriod(uint32_t source) const { return shares[source]; }

private:
  // The index of a block in its source is counted from the latest entry of `counts` before it.
  static constexpr uint64_t kStride = 256;

  std::vector<uint64_t> shares;  // by source
  std::vector<uint16_t> sources; // source of each block of a period
  std::vector<uint32_t> counts;  // [period / kStride + 1, sources]: blocks before each stride
};

} // namespace lmc
