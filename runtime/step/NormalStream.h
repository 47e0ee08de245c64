// Computes normally distributed random numbers, each from its index alone.
//
// Element i of stream s with seed k is a function of (k, s, i), the same on all machines: only IEEE
// additions, multiplications, divisions and square roots are used.
#pragma once

#include <array>
#include <cstdint>

namespace lmc {

// Returns the result of ten rounds of Philox4x32 over a 128-bit counter with a 64-bit key (Salmon
// et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Sets out[j] = stddev * z(begin + j) for j in [0, count). z is standard normal, by Box-Muller from
// the 32-bit words of philox4x32. The counter is (i / 4, stream), the key is the seed. The four
// words of block b give elements 4b .. 4b + 3. |z| is below sqrt(2 ln 2^33) = 6.77.
template <typename T> // float or double
void fillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t count, double stddev,
                T *out);

} // namespace lmc
