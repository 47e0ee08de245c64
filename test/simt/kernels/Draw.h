// Shapes drawn at random. A draw is known by its seed, which a failing check prints.
#pragma once

#include "test/Draws.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>

namespace lmc::simt {

class Draw {
public:
  explicit Draw(uint64_t seed) : random(seed) {}

  // In [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  }
  bool oneIn(int64_t n) { return between(1, n) == 1; }
  template <typename T> T pick(std::initializer_list<T> of) {
    return of.begin()[between(0, int64_t(of.size()) - 1)];
  }

  // In [1, most]: one, a few, a multiple of a warp or one off, whole vectors of 16 bytes in
  // any dtype, or any number, small and large ones alike.
  int64_t extent(int64_t most) {
    auto wanted = [&] {
      switch (between(0, 4)) {
      case 0:
        return int64_t(1);
      case 1:
        return between(2, 9);
      case 2:
        return 32 * between(1, 1 + std::min<int64_t>(most / 64, 40)) + between(-1, 1);
      case 3:
        return 8 * between(1, 1 + std::min<int64_t>(most / 16, 100));
      }
      return int64_t(std::exp(std::uniform_real_distribution<>(0, std::log(double(most)))(random)));
    };
    return std::clamp<int64_t>(wanted(), 1, most);
  }

private:
  std::mt19937_64 random;
};

using test::drawCount;

} // namespace lmc::simt
