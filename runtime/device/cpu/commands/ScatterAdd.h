// The scatter-add command on the CPU.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>

namespace lmc::cpu {

// The operands of d[ids[t], :] += x[t, :], computed in ascending order of t; unless `accumulate`, d
// is set to zero first. Each thread computes some of the columns, so every element is summed in the
// same order for any number of threads. An id outside [0, vocabulary) adds nothing.
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
