// The GPU architectures that CUDA code is generated for, and their hardware limits.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace lmc::codegen {

// Properties of a GPU, on which the choice of a kernel's variant depends.
struct CudaChip {
  int sms;                   // number of SMs
  double tensorFlops;        // FLOPs of mma.sync on bf16, per clock cycle and SM
  double warpgroupFlops;     // FLOPs of wgmma on bf16, per clock cycle and SM; 0: no wgmma
  int64_t cacheBytes;        // size of the L2 cache
  double cacheBytesPerClock; // bandwidth of the L2 cache to all SMs together
  // Attention by mma.sync: measured / predicted cycles (AttentionTiles.cpp); 1: not measured.
  double attentionShare;
  // The measured FLOP/s of experts' wgmma kernels divided by those of cuBLASLt; 1: not measured.
  double expertShare = 1, expertGradShare = 1;
};

// The limits of an architecture that kernels rely on. "Block" is a thread block.
struct CudaArch {
  llvm::StringRef name; // "sm_90a"
  unsigned version;     // the architecture as a number: 90
  unsigned sharedBytesPerBlock;
  unsigned sharedBytesPerSm;
  unsigned threadsPerSm;
  unsigned blocksPerSm;
  CudaChip chip;

  // Returns true if the code may use wgmma. Only the architecture sm_90a has it; sm_90 lacks it.
  bool hasWarpgroups() const { return name == "sm_90a"; }
};

// Returns all architectures that code is generated for, oldest first: sm_80 and later.
llvm::ArrayRef<CudaArch> cudaArchs();

// Returns the architecture of this name; null if cudaArchs() has none.
const CudaArch *findCudaArch(llvm::StringRef name);

// Returns the number of thread blocks that are resident on an SM at the same time. `threads` and
// `sharedBytes` are per block, `registers` is per thread. Returns 0 if no block fits.
unsigned residentBlocks(const CudaArch &arch, unsigned threads, unsigned registers,
                        unsigned sharedBytes);

} // namespace lmc::codegen
