// A pseudo-random permutation of 0 .. size-1 that needs no table.
//
// A balanced Feistel network permutes the 2h-bit numbers, 4^h >= size, whatever its
// round function is. Cycle walking (apply again until the value is below size)
// restricts it to 0 .. size-1: following a cycle of a bijection from inside a subset
// until it returns to the subset is itself a bijection of the subset. See J. Black
// and P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
#pragma once

#include <array>
#include <cstdint>

namespace lmc {

class Permutation {
public:
  // Keyed by (seed, epoch); the same three numbers give the same permutation on
  // every machine. size >= 1.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // The image of index < size. Four applications of the network on average at most
  // when size > 64.
  uint64_t operator()(uint64_t index) const;

private:
  static constexpr int kRounds = 8;
  uint64_t size;
  int halfBits;
  std::array<uint64_t, kRounds> roundKeys;
};

} // namespace lmc
