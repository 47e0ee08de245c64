// The scatter-add command on the CPU.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>

namespace lmc::cpu {

// d[ids[t], :] += x[t, :] for t = 0 to rows - 1, in this order for any number of threads. Without
// `accumulate`, d is set to 0 first. If ids[t] is outside [0, vocabulary), row t adds nothing.
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
