#include "compiler/targets/cuda/CudaArch.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace lmc::codegen {

// A100: 108 SMs; 2048 bf16 FLOPs per clock cycle and SM (312 TFLOP/s dense at 1.41 GHz); 40 MB of
// L2 cache, which gives 5120 bytes per clock cycle (NVIDIA A100 whitepaper).
static constexpr CudaChip kA100{108, 2048, 0, 40000000, 5120, 1};

// H100 SXM: 132 SMs. Per clock cycle and SM, 4096 bf16 FLOPs by wgmma (989 TFLOP/s at 1.83 GHz),
// and 62% of this by mma.sync (Luo et al., arXiv:2402.13499). 50 MB of L2 cache (NVIDIA H100
// whitepaper); its bandwidth is assumed to be the A100's. attentionShare = 0.85: 21 attention
// kernels at 1.98 GHz took 0.69 to 0.99 of the predicted cycles. expertShare and expertGradShare
// were measured with 64 experts and 131072 rows. All measurements: bench/results, 2026-11-26.
static constexpr CudaChip kH100{132, 0.62 * 4096, 4096, 50000000, 5120, 0.85, 0.98, 0.93};

// B200: 148 SMs, no wgmma. All other numbers are assumed to equal the H100's.
static constexpr CudaChip kB200{148, 0.62 * 4096, 0, 50000000, 5120, 0.85};

// The limits per SM are from the CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability". A GPU without a CudaChip above uses the CudaChip of an older GPU.
llvm::ArrayRef<CudaArch> cudaArchs() {
  static const CudaArch archs[] = {
      {"sm_80", 80, 163 << 10, 164 << 10, 2048, 32, kA100},
      {"sm_86", 86, 99 << 10, 100 << 10, 1536, 16, kA100},
      {"sm_87", 87, 163 << 10, 164 << 10, 1536, 16, kA100},
      {"sm_89", 89, 99 << 10, 100 << 10, 1536, 24, kA100},
      {"sm_90", 90, 227 << 10, 228 << 10, 2048, 32, kH100},
      {"sm_90a", 90, 227 << 10, 228 << 10, 2048, 32, kH100},
      {"sm_100", 100, 227 << 10, 228 << 10, 2048, 32, kB200},
      {"sm_100a", 100, 227 << 10, 228 << 10, 2048, 32, kB200},
      {"sm_100f", 100, 227 << 10, 228 << 10, 2048, 32, kB200},
      {"sm_103", 103, 227 << 10, 228 << 10, 2048, 32, kB200},
      {"sm_103a", 103, 227 << 10, 228 << 10, 2048, 32, kB200},
      {"sm_120", 120, 99 << 10, 100 << 10, 1536, 24, kB200},
      {"sm_120a", 120, 99 << 10, 100 << 10, 1536, 24, kB200},
      {"sm_121", 121, 99 << 10, 100 << 10, 1536, 24, kB200},
      {"sm_121a", 121, 99 << 10, 100 << 10, 1536, 24, kB200},
  };
  return archs;
}

const CudaArch *findCudaArch(llvm::StringRef name) {
  for (const CudaArch &arch : cudaArchs())
    if (arch.name == name)
      return &arch;
  return nullptr;
}

// Each of an SM's four parts has a quarter of the registers. A warp has a multiple of 256. A thread
// block's shared memory, with 1 KiB for the system, is a multiple of 128 bytes (cuda_occupancy.h).
unsigned residentBlocks(const CudaArch &arch, unsigned threads, unsigned registers,
                        unsigned sharedBytes) {
  constexpr unsigned kRegistersPerPart = 65536 / 4, kParts = 4, kWarp = 32, kReserved = 1024;
  if (threads == 0 || sharedBytes > arch.sharedBytesPerBlock)
    return 0;
  const unsigned warps = llvm::divideCeil(threads, kWarp);
  const unsigned ofWarp = unsigned(llvm::alignTo<256>(std::max(registers, 1u) * kWarp));
  const unsigned byRegisters = kRegistersPerPart / ofWarp * kParts / warps;
  const unsigned byShared =
      arch.sharedBytesPerSm / unsigned(llvm::alignTo<128>(sharedBytes + kReserved));
  return std::min({arch.blocksPerSm, arch.threadsPerSm / (warps * kWarp), byRegisters, byShared});
}

} // namespace lmc::codegen
