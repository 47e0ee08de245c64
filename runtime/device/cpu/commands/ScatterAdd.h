#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>

namespace lmc::cpu {

// d[ids[t], :] += x[t, :] for t ascending; d is zeroed first unless `accumulate`.
// Threads share the columns, so that every element is summed in order whatever
// their number. An id outside the vocabulary adds nothing.
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
