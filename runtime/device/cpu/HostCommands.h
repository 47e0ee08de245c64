// The commands that need no code of the plan's, bound to addresses in this machine's memory: the
// CPU device and the SIMT device run them alike.
#pragma once

#include "runtime/device/cpu/Gemm.h"
#include "runtime/device/cpu/HostMemory.h"

namespace lmc::cpu {

// How elements of a float type lie in memory; F32 for types that are no floats.
Storage storageOf(plan::DType dtype);

struct GemmCommand {
  Gemm *gemm;
  const void *a, *b, *bias; // bias: null where there is none
  void *d;

  void run() const { gemm->run(a, b, d, bias); }
};

// `rows` runs of `bytes` each, `dPitch` and `xPitch` bytes apart. Where both sides are dense,
// there is one run.
struct CopyCommand {
  char *d;
  const char *x;
  int64_t bytes, rows, dPitch, xPitch;

  void run(int threads) const;
};

Result<GemmCommand> bindGemm(const plan::Gemm &op, HostMemory &memory, GemmCache &gemms);
CopyCommand bindCopy(const plan::Copy &op, HostMemory &memory);

} // namespace lmc::cpu
