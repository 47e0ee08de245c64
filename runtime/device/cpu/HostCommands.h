// Commands that need no generated kernel (matrix product, copy), with their operands as addresses
// in this machine's memory. Both the CPU device and the SIMT device run them.
#pragma once

#include "runtime/device/cpu/Gemm.h"
#include "runtime/device/cpu/HostMemory.h"

namespace lmc::cpu {

// Returns the storage type for a float dtype, and F32 for every other dtype.
Storage storageOf(plan::DType dtype);

struct GemmCommand {
  Gemm *gemm;
  const char *a, *b, *bias; // `bias` is null if there is none
  char *d;
  // The number of products, and the bytes from a matrix of one to that of the next.
  int64_t batch = 1, strideA = 0, strideB = 0, strideD = 0;

  void run() const {
    for (int64_t i = 0; i < batch; ++i)
      gemm->run(a + i * strideA, b + i * strideB, d + i * strideD, bias);
  }
};

// A copy of `rows` runs of `bytes` bytes each from x to d. Runs start `xPitch` bytes apart in x and
// `dPitch` bytes apart in d. If neither slice has a pitch, there is one run.
struct CopyCommand {
  char *d;
  const char *x;
  int64_t bytes, rows, dPitch, xPitch;

  void run(int threads) const;
};

Result<GemmCommand> bindGemm(const plan::Gemm &op, HostMemory &memory, GemmCache &gemms);
CopyCommand bindCopy(const plan::Copy &op, HostMemory &memory);

} // namespace lmc::cpu
