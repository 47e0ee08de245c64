#include "runtime/data/Permutation.h"

#include <bit>

namespace lmc {

namespace {

// The last steps of SplitMix64. G. Steele et al., "Fast Splittable Pseudorandom Number Generators",
// OOPSLA 2014.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15; // 2^64 / golden ratio, SplitMix64's increment

// A round maps h bits to h bits. If h is below this minimum, there are too few different maps.
constexpr int kMinHalfBits = 4;

} // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch) : size(size) {
  halfBits = (std::bit_width(size - 1) + 1) / 2;
  if (halfBits < kMinHalfBits)
    halfBits = kMinHalfBits;
  uint64_t key = mix(mix(seed + kGolden) + epoch);
  for (uint64_t &roundKey : roundKeys)
    roundKey = mix(key += kGolden);
}

uint64_t Permutation::operator()(uint64_t index) const {
  uint64_t mask = (uint64_t(1) << halfBits) - 1;
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint64_t roundKey : roundKeys) {
      uint64_t next = left ^ (mix(right ^ roundKey) & mask);
      left = right;
      right = next;
    }
    index = left << halfBits | right;
  } while (index >= size);
  return index;
}

} // namespace lmc
