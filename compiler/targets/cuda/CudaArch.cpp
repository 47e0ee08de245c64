#include "compiler/targets/cuda/CudaKernel.h"

#include <algorithm>

namespace lmc::codegen {

// Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
llvm::ArrayRef<CudaArch> cudaArchs() {
  static const CudaArch archs[] = {
      {"sm_80", 80, 163 << 10, 164 << 10, 2048, 32},
      {"sm_86", 86, 99 << 10, 100 << 10, 1536, 16},
      {"sm_87", 87, 163 << 10, 164 << 10, 1536, 16},
      {"sm_89", 89, 99 << 10, 100 << 10, 1536, 24},
      {"sm_90", 90, 227 << 10, 228 << 10, 2048, 32},
      {"sm_90a", 90, 227 << 10, 228 << 10, 2048, 32},
      {"sm_100", 100, 227 << 10, 228 << 10, 2048, 32},
      {"sm_100a", 100, 227 << 10, 228 << 10, 2048, 32},
      {"sm_100f", 100, 227 << 10, 228 << 10, 2048, 32},
      {"sm_103", 103, 227 << 10, 228 << 10, 2048, 32},
      {"sm_103a", 103, 227 << 10, 228 << 10, 2048, 32},
      {"sm_120", 120, 99 << 10, 100 << 10, 1536, 24},
      {"sm_120a", 120, 99 << 10, 100 << 10, 1536, 24},
      {"sm_121", 121, 99 << 10, 100 << 10, 1536, 24},
      {"sm_121a", 121, 99 << 10, 100 << 10, 1536, 24},
  };
  return archs;
}

const CudaArch *findCudaArch(llvm::StringRef name) {
  for (const CudaArch &arch : cudaArchs())
    if (arch.name == name)
      return &arch;
  return nullptr;
}

// Registers are allocated to warps in units of 256; the system reserves 1 KiB of shared memory for
// each block (CUDA C++ Programming Guide, "Compute Capabilities"; CUDA Occupancy Calculator).
unsigned residentBlocks(const CudaArch &arch, unsigned threads, unsigned registers,
                        unsigned sharedBytes) {
  constexpr unsigned kRegistersPerSm = 65536, kWarp = 32, kUnit = 256, kReserved = 1024;
  if (threads == 0 || sharedBytes > arch.sharedBytesPerBlock)
    return 0;
  const unsigned warps = (threads + kWarp - 1) / kWarp;
  const unsigned ofWarp = (std::max(registers, 1u) * kWarp + kUnit - 1) / kUnit * kUnit;
  const unsigned byRegisters = kRegistersPerSm / ofWarp / warps;
  const unsigned byShared = arch.sharedBytesPerSm / (sharedBytes + kReserved);
  return std::min({arch.blocksPerSm, arch.threadsPerSm / (warps * kWarp), byRegisters, byShared});
}

} // namespace lmc::codegen
