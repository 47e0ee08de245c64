// A pseudo-random permutation of 0 .. size-1, computed without a table.
//
// A balanced Feistel network permutes all numbers of 2h bits, where 4^h >= size. If a result is not
// below `size`, the network is applied to this result again (cycle walking). See J. Black and P.
// Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
#pragma once

#include <array>
#include <cstdint>

namespace lmc {

class Permutation {
public:
  // Requires size >= 1. Equal arguments give the same permutation on every machine.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // Returns the value to which `index` < size is mapped.
  uint64_t operator()(uint64_t index) const;

private:
  static constexpr int kRounds = 8;
  uint64_t size;
  int halfBits;
  std::array<uint64_t, kRounds> roundKeys;
};

} // namespace lmc
