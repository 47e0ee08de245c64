// A pseudo-random permutation of 0 .. size-1 that needs no table.
//
// A balanced Feistel network permutes the numbers of 2h bits (4^h >= size), for any round function.
// Cycle walking, which applies the network again until the value is below size, restricts the
// permutation to 0 .. size-1: walking along a cycle of a bijection from an element of a subset
// until the next element of the subset is a bijection of the subset. See J. Black and P. Rogaway,
// "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
#pragma once

#include <array>
#include <cstdint>

namespace lmc {

class Permutation {
public:
  // `seed` and `epoch` are the key; the same size, seed and epoch give the same permutation on
  // every machine. size >= 1.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // Returns the image of index < size. If size > 64, the network is applied four times at most on
  // average.
  uint64_t operator()(uint64_t index) const;

private:
  static constexpr int kRounds = 8;
  uint64_t size;
  int halfBits;
  std::array<uint64_t, kRounds> roundKeys;
};

} // namespace lmc
