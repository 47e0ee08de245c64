// The command scatter-add on the CPU.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>

namespace lmc::cpu {

// d[ids[t], :] += x[t, :] in ascending order of t; d is zeroed first unless `accumulate`. Threads
// divide the columns, so that every element is summed in the same order for any number of threads.
// An id outside the vocabulary adds nothing.
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
