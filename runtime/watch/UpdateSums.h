// Computes the update of a tensor by a step of AdamW, on the host, from the state after the step.
//
// Let w, m and v be a weight and its two moments after the step. Let r be the learning rate, d the
// weight decay, and c1 and c2 the bias corrections. The step was (lm.adamw in dialects/lm/LmOps.td)
//
//   q = r / c1 * m / (sqrt(v) / sqrt(c2) + eps),   w = w' (1 - r d) - q,
//
// so the weight w' before the step and the update u are
//
//   w' = (w + q) / (1 - r d),   u = w' - w = q + r d w'.
//
// These formulas are computed in f64. With f32 weights, the error of w' is about the rounding error
// of w. With 8-bit moments, which are rounded after the step, the error of q is a few percent.
#pragma once

#include "runtime/settings/Settings.h"

#include <cstdint>

namespace lmc {

// The sums of the squares of these quantities (see above) over elements of a tensor.
struct UpdateSums {
  double update = 0;  // u
  double before = 0;  // w'
  double weights = 0; // w
  double moment1 = 0; // m; 0 if the tensor never had a gradient

  static constexpr uint64_t kNumbers = 4;

  void add(const UpdateSums &more);
};

// Returns the sums over `count` elements of a parameter. `decays`: it has weight decay. One thread
// of an AMD EPYC processes 350 million f32 elements per second (2026-11-25).
template <typename T> // float or double
UpdateSums updateSums(const AdamWStep &step, bool decays, const T *weights, const T *moment1,
                      const T *moment2, uint64_t count);

// 8-bit moments. Each element has a code, and each moment block (MomentBlock.h) has a scale.
struct CodedMoments {
  const int8_t *codes1 = nullptr;
  const uint8_t *codes2 = nullptr;
  const float *scales1 = nullptr, *scales2 = nullptr;
};

// Returns the sums for a parameter with 8-bit moments. Its first element must begin a moment block.
UpdateSums updateSums(const AdamWStep &step, bool decays, const float *weights,
                      const CodedMoments &moments, uint64_t count);

} // namespace lmc
