// The architectures that CUDA code is generated for, and the facts about their devices.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace lmc::codegen {

// The facts about a whole device that the choice of a kernel's variant depends on.
struct CudaChip {
  int sms;
  double tensorFlops;        // of mma.sync on bf16, per clock and SM
  int64_t cacheBytes;        // of the L2 cache
  double cacheBytesPerClock; // that the L2 cache gives to all SMs together
};

// The facts about an architecture that kernels rely on. The numbers are per SM.
struct CudaArch {
  llvm::StringRef name; // "sm_90a"
  unsigned version;     // 90
  unsigned sharedBytesPerBlock;
  unsigned sharedBytesPerSm;
  unsigned threadsPerSm;
  unsigned blocksPerSm;
  CudaChip chip;
};

// All architectures that code is generated for, oldest first: sm_80 and later.
llvm::ArrayRef<CudaArch> cudaArchs();

// Returns the architecture of this name, or null if it is not one of cudaArchs().
const CudaArch *findCudaArch(llvm::StringRef name);

// Returns how many blocks of `threads` threads fit on an SM at once, given the registers of a
// thread and the shared memory of a block; 0 if not even one fits.
unsigned residentBlocks(const CudaArch &arch, unsigned threads, unsigned registers,
                        unsigned sharedBytes);

} // namespace lmc::codegen
