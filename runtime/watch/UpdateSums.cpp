#include "runtime/watch/UpdateSums.h"

#include "ground/plan/MomentBlock.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lmc {

void UpdateSums::add(const UpdateSums &more) {
  update += more.update;
  before += more.before;
  weights += more.weights;
  moment1 += more.moment1;
}

// Vectorisation needs -fno-math-errno (layer.cmake) and OpenMP's permission to reorder the sums.
template <typename T>
UpdateSums updateSums(const AdamWStep &step, bool decays, const T *weights, const T *moment1,
                      const T *moment2, uint64_t count) {
  const double rate = step.lr / step.correction1;
  const double root = 1 / std::sqrt(step.correction2), eps = step.eps;
  const double decay = decays ? step.lr * step.weightDecay : 0, kept = 1 / (1 - decay);
  double update = 0, before = 0, after = 0, first = 0;
#pragma omp simd reduction(+ : update, before, after, first)
  for (uint64_t i = 0; i < count; ++i) {
    const double w = weights[i], m = moment1[i], v = moment2[i];
    const double a = rate * m / (std::sqrt(v) * root + eps);
    const double old = (w + a) * kept;
    const double u = a + decay * old;
    update += u * u;
    before += old * old;
    after += w * w;
    first += m * m;
  }
  return {update, before, after, first};
}

template UpdateSums updateSums(const AdamWStep &, bool, const float *, const float *, const float *,
                               uint64_t);
template UpdateSums updateSums(const AdamWStep &, bool, const double *, const double *,
                               const double *, uint64_t);

namespace {

// The moments that the codes stand for at a scale of 1. Code c of a first moment is first[c + 128].
struct DecodedMoments {
  std::array<float, 256> first{}, second{};
  DecodedMoments() {
    for (int code = 0; code < 256; ++code) {
      const double c1 = (code - 128) / 127.0, c2 = code / 255.0;
      first[static_cast<size_t>(code)] = static_cast<float>(std::copysign(std::pow(c1, 4), c1));
      second[static_cast<size_t>(code)] = static_cast<float>(std::pow(c2, 8));
    }
  }
};

} // namespace

UpdateSums updateSums(const AdamWStep &step, bool decays, const float *weights,
                      const CodedMoments &moments, uint64_t count) {
  static const DecodedMoments decoded;
  constexpr auto kBlock = static_cast<uint64_t>(kMomentBlock);
  std::array<float, kBlock> moment1, moment2;
  UpdateSums sums;
  for (uint64_t first = 0; first < count; first += kBlock) {
    const uint64_t size = std::min(kBlock, count - first);
    const float scale1 = moments.scales1[first / kBlock], scale2 = moments.scales2[first / kBlock];
    for (uint64_t i = 0; i < size; ++i) {
      moment1[i] = scale1 * decoded.first[static_cast<size_t>(moments.codes1[first + i] + 128)];
      moment2[i] = scale2 * decoded.second[moments.codes2[first + i]];
    }
    sums.add(updateSums(step, decays, weights + first, moment1.data(), moment2.data(), size));
  }
  return sums;
}

} // namespace lmc
