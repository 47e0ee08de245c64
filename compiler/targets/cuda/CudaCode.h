// Many kernels to cubins: from the cache, or by NVRTC on all cores.
#pragma once

#include "compiler/targets/cuda/KernelCache.h"
#include "compiler/targets/cuda/Nvrtc.h"

namespace lmc::codegen {

// A kernel with its code.
struct CudaCode {
  CudaKernel kernel;
  Cubin cubin;
};

// In the order of `kernels`; equal ones are compiled once. Errors: no NVRTC, or a kernel that
// does not compile (the first of them in `kernels`).
llvm::Expected<std::vector<CudaCode>> compileCuda(std::vector<CudaKernel> kernels,
                                                  llvm::StringRef arch, const KernelCache &cache);

} // namespace lmc::codegen
