// -ffp-contract=off (layer.cmake) forbids fused multiply-adds: not every machine has them, and they
// change the results. -fno-math-errno lets the compiler vectorise sqrt.
#include "runtime/step/NormalStream.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

// Functions with this attribute also have an AVX2 version, with the same results. The loader
// chooses a version before a sanitizer is ready, so a build with a sanitizer has only one version.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LMC_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LMC_VECTOR_CLONES
#endif
#define LMC_INLINE inline __attribute__((always_inline))

namespace lmc {

static LMC_INLINE void philoxBlock(uint32_t &c0, uint32_t &c1, uint32_t &c2, uint32_t &c3,
                                   uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9; // golden ratio
    k1 += 0xBB67AE85; // sqrt(3) - 1
  }
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  philoxBlock(c[0], c[1], c[2], c[3], key[0], key[1]);
  return c;
}

// Converts x to double exactly: sets the low bits of the double 2^52 to x, and subtracts 2^52.
// Unlike a conversion instruction, this vectorises without AVX-512.
static LMC_INLINE double toDouble(uint32_t x) {
  return std::bit_cast<double>(0x4330000000000000ull | x) - 0x1p52;
}

// Returns sqrt(-2 ln u) for u = (x + 1/2) / 2^32 in (0, 1). Let u = 2^e m with m in [sqrt(1/2),
// sqrt(2)), and s = (m - 1) / (m + 1). Then ln u = e ln 2 + 2 atanh(s). The series of atanh ends
// with s^19 (error < 1e-16).
static LMC_INLINE double radius(uint32_t x) {
  double u = (toDouble(x) + 0.5) * 0x1p-32;
  uint64_t bits = std::bit_cast<uint64_t>(u);
  // The exponent of `shifted` is one higher if u's mantissa, in [1, 2), is at least sqrt(2).
  uint64_t shifted = bits + (0x3FF0000000000000ull - 0x3FE6A09E667F3BCDull);
  uint32_t exponent = static_cast<uint32_t>(shifted >> 52); // biased by 1023
  double m = std::bit_cast<double>((shifted & 0x000FFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull);
  double e = toDouble(exponent) - 1023.0;
  double s = (m - 1.0) / (m + 1.0), t = s * s;
  double series = 1.0 / 19;
  series = series * t + 1.0 / 17;
  series = series * t + 1.0 / 15;
  series = series * t + 1.0 / 13;
  series = series * t + 1.0 / 11;
  series = series * t + 1.0 / 9;
  series = series * t + 1.0 / 7;
  series = series * t + 1.0 / 5;
  series = series * t + 1.0 / 3;
  series = series * t + 1.0;
  double logarithm = e * 0x1.62e42fefa39efp-1 + 2.0 * s * series;
  return std::sqrt(-2.0 * logarithm);
}

// Computes cos and sin of 2 pi y / 2^32. Subtracts the nearest multiple of a quarter turn exactly.
// For the remaining angle a, |a| <= pi / 4, uses Taylor series (error < 1e-16).
static LMC_INLINE void cosSin(uint32_t y, double &cosine, double &sine) {
  uint32_t q = (y + 0x20000000u) >> 30; // number of the nearest quarter turn, modulo 4
  // The distance from the nearest quarter turn, plus 2^29, because toDouble() takes no negative
  // number.
  uint32_t offset = y + 0x20000000u - (q << 30);
  double a = (toDouble(offset) - 0x1p29) * (0x1.921fb54442d18p+2 * 0x1p-32);
  double t = a * a;
  double c = 1.0 / 20922789888000;
  c = c * t - 1.0 / 87178291200;
  c = c * t + 1.0 / 479001600;
  c = c * t - 1.0 / 3628800;
  c = c * t + 1.0 / 40320;
  c = c * t - 1.0 / 720;
  c = c * t + 1.0 / 24;
  c = c * t - 0.5;
  c = c * t + 1.0;
  double s = -1.0 / 1307674368000;
  s = s * t + 1.0 / 6227020800;
  s = s * t - 1.0 / 39916800;
  s = s * t + 1.0 / 362880;
  s = s * t - 1.0 / 5040;
  s = s * t + 1.0 / 120;
  s = s * t - 1.0 / 6;
  s = s * t * a + a;
  // The results after 0, 1, 2 and 3 quarter turns: (c, s), (-s, c), (-c, -s), (s, -c). Bit masks
  // select one, because branches would prevent vectorisation.
  uint64_t cBits = std::bit_cast<uint64_t>(c), sBits = std::bit_cast<uint64_t>(s);
  uint64_t swapped = (cBits ^ sBits) & (uint64_t{0} - (q & 1));
  cosine = std::bit_cast<double>((cBits ^ swapped) ^ (uint64_t{(q + 1) & 2} << 62));
  sine = std::bit_cast<double>((sBits ^ swapped) ^ (uint64_t{q & 2} << 62));
}

static constexpr size_t kTileBlocks = 64;

// Computes kTileBlocks blocks of four standard normal numbers, from block `first` on.
LMC_VECTOR_CLONES
static void normalTile(uint64_t seed, uint64_t stream, uint64_t first, double *out) {
  uint32_t words[4][kTileBlocks];
  for (size_t b = 0; b < kTileBlocks; ++b) {
    uint64_t block = first + b;
    uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
    philoxBlock(c0, c1, c2, c3, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    words[0][b] = c0;
    words[1][b] = c1;
    words[2][b] = c2;
    words[3][b] = c3;
  }
  for (size_t pair = 0; pair < 2; ++pair)
    for (size_t b = 0; b < kTileBlocks; ++b) {
      double cosine, sine;
      double r = radius(words[2 * pair][b]);
      cosSin(words[2 * pair + 1][b], cosine, sine);
      out[4 * b + 2 * pair] = r * cosine;
      out[4 * b + 2 * pair + 1] = r * sine;
    }
}

template <typename T>
void fillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t count, double stddev,
                T *out) {
  double tile[4 * kTileBlocks];
  uint64_t end = begin + count;
  // A tile begins at a multiple of four elements, so the first tile may begin before `begin`.
  for (uint64_t start = begin / 4 * 4; start < end; start += 4 * kTileBlocks) {
    normalTile(seed, stream, start / 4, tile);
    uint64_t from = std::max(start, begin), to = std::min(start + 4 * kTileBlocks, end);
    for (uint64_t i = from; i < to; ++i)
      out[i - begin] = static_cast<T>(stddev * tile[i - start]);
  }
}

template void fillNormal(uint64_t, uint64_t, uint64_t, uint64_t, double, float *);
template void fillNormal(uint64_t, uint64_t, uint64_t, uint64_t, double, double *);

} // namespace lmc
