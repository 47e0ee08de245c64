// Random operands in every storage type, seen as doubles.
#pragma once

#include "runtime/device/cpu/Gemm.h"

#include <cstring>
#include <random>
#include <vector>

namespace lmc::cpu::test {

inline uint16_t toBf16(float x) {
  uint32_t word;
  std::memcpy(&word, &x, 4);
  return uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

inline float fromBf16(uint16_t x) {
  uint32_t word = uint32_t(x) << 16;
  float result;
  std::memcpy(&result, &word, 4);
  return result;
}

// A tensor, its elements rounded to `storage`. Starts as NaN where not random, so
// that what is never written shows.
struct Values {
  Storage storage;
  std::vector<char> bytes;

  Values(Storage storage, int64_t elements)
      : storage(storage), bytes(size_t(elements * elementBytes(storage)), char(0xff)) {}

  static Values random(Storage storage, int64_t elements, std::mt19937_64 &generator,
                       double scale = 1) {
    Values values(storage, elements);
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < elements; ++i)
      values.set(i, normal(generator));
    return values;
  }

  void set(int64_t i, double x) {
    float single = float(x);
    uint16_t half = toBf16(single);
    if (storage == Storage::F64)
      std::memcpy(&bytes[size_t(i) * 8], &x, 8);
    else if (storage == Storage::F32)
      std::memcpy(&bytes[size_t(i) * 4], &single, 4);
    else
      std::memcpy(&bytes[size_t(i) * 2], &half, 2);
  }

  double operator[](int64_t i) const {
    double x;
    float single;
    uint16_t half;
    if (storage == Storage::F64) {
      std::memcpy(&x, &bytes[size_t(i) * 8], 8);
      return x;
    }
    if (storage == Storage::F32) {
      std::memcpy(&single, &bytes[size_t(i) * 4], 4);
      return single;
    }
    std::memcpy(&half, &bytes[size_t(i) * 2], 2);
    return fromBf16(half);
  }

  int64_t size() const { return int64_t(bytes.size()) / elementBytes(storage); }
  char *data() { return bytes.data(); }
};

// The largest error relative to the largest expected magnitude (NaN: infinite).
inline double error(const Values &actual, const std::vector<double> &expected) {
  double worst = 0, scale = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    double difference = std::abs(actual[int64_t(i)] - expected[i]);
    if (!(difference <= worst))
      worst = difference == difference ? difference : 1e300;
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

inline double tolerance(Storage storage) {
  return storage == Storage::F64 ? 1e-10 : storage == Storage::F32 ? 1e-5 : 1e-2;
}

} // namespace lmc::cpu::test
