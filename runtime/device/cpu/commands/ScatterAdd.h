// The scatter-add command on the CPU.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>

namespace lmc::cpu {

// Computes d[ids[t], :] += x[t, :] for t = 0, 1, ..., rows - 1, in this order even on many threads.
// Without `accumulate`, d is first set to 0. Skips row t if ids[t] is outside [0, vocabulary).
struct ScatterAddArgs {
  const int32_t *ids;
  const void *x;
  void *d;
  Storage xStorage, dStorage;
  int64_t rows, columns, vocabulary;
  bool accumulate;
};
void scatterAdd(const ScatterAddArgs &args, int threads);

} // namespace lmc::cpu
