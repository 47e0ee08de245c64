// A pseudo-random permutation of 0 .. size-1, computed without a table.
//
// A balanced Feistel network permutes the numbers of 2h bits (4^h >= size), for any round function.
// To get a permutation of 0 .. size-1, the network is applied again until the value is below size
// (cycle walking). This is a bijection: it maps each value below size to the next such value on its
// cycle. See J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
#pragma once

#include <array>
#include <cstdint>

namespace lmc {

class Permutation {
public:
  // Requires size >= 1. Equal arguments give the same permutation on every machine.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // Returns the value to which `index` < size is mapped. If size > 64, the network is applied at
  // most four times on average.
  uint64_t operator()(uint64_t index) const;

private:
  static constexpr int kRounds = 8;
  uint64_t size;
  int halfBits;
  std::array<uint64_t, kRounds> roundKeys;
};

} // namespace lmc
