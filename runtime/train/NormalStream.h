// Random normal numbers by position: no generator, no state.
//
// Element i of stream s under seed k is computed from (k, s, i) alone, so it does
// not depend on order, thread count, rank or how a tensor is sharded, nor on the
// machine: only IEEE additions, multiplications, divisions and square roots are
// used, in a fixed order, and no libm.
#pragma once

#include <array>
#include <cstdint>

namespace lmc {

// Philox4x32-10: ten rounds over a 128-bit counter under a 64-bit key.
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// out[j] = stddev * z(begin + j) for j in [0, count), with z standard normal by
// Box-Muller of Philox words: counter (i / 4, stream), key seed; each block of four
// words gives elements 4b .. 4b + 3. |z| stays below sqrt(2 ln 2^33) = 6.77.
void fillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t count, double stddev,
                float *out);
void fillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t count, double stddev,
                double *out);

} // namespace lmc
