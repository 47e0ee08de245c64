#include "passes/codegen/CudaKernel.h"

namespace lmc::codegen {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": shared memory
// of a block (with the opt-in) and of an SM.
const CudaArch *findCudaArch(llvm::StringRef name) {
  static const CudaArch archs[] = {
      {"sm_80", 80, 163 << 10, 164 << 10},
      {"sm_90", 90, 227 << 10, 228 << 10},
      {"sm_90a", 90, 227 << 10, 228 << 10},
      {"sm_100", 100, 227 << 10, 228 << 10},
      {"sm_100a", 100, 227 << 10, 228 << 10},
  };
  for (const CudaArch &arch : archs)
    if (arch.name == name)
      return &arch;
  return nullptr;
}

} // namespace lmc::codegen
