#include "runtime/comm/RankOrderSum.h"

#include "ground/plan/FloatConvert.h"

#include <algorithm>
#include <vector>

namespace lmc {

using plan::DType;

template <typename T>
static void sum(const void *const *xs, int ranks, uint64_t elements, void *out) {
  T *d = static_cast<T *>(out);
  for (uint64_t i = 0; i < elements; ++i) {
    T total = static_cast<const T *>(xs[0])[i];
    for (int rank = 1; rank < ranks; ++rank)
      total += static_cast<const T *>(xs[rank])[i];
    d[i] = total;
  }
}

// Widens blocks of bf16 or f16 elements to f32, adds them up, and rounds the sums.
static void sumShort(const void *const *xs, int ranks, uint64_t elements, DType dtype,
                     void *out) {
  constexpr uint64_t kBlock = 4096;
  std::vector<float> total(std::min(kBlock, elements)), x(total.size());
  for (uint64_t first = 0; first < elements; first += kBlock) {
    const uint64_t count = std::min(kBlock, elements - first);
    auto read = [&](int rank, float *to) {
      convertFloats(dtype, static_cast<const uint16_t *>(xs[rank]) + first, DType::F32, to,
                    count);
    };
    read(0, total.data());
    for (int rank = 1; rank < ranks; ++rank) {
      read(rank, x.data());
      for (uint64_t i = 0; i < count; ++i)
        total[i] += x[i];
    }
    convertFloats(DType::F32, total.data(), dtype, static_cast<uint16_t *>(out) + first, count);
  }
}

void sumInRankOrder(const void *const *xs, int ranks, uint64_t elements, DType dtype, void *d) {
  switch (dtype) {
  case DType::F32:
    return sum<float>(xs, ranks, elements, d);
  case DType::F64:
    return sum<double>(xs, ranks, elements, d);
  case DType::BF16:
  case DType::F16:
    return sumShort(xs, ranks, elements, dtype, d);
  default:
    return;
  }
}

} // namespace lmc
