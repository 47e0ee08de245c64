// Compiles kernels to cubins on all CPU cores, by NVRTC unless the cache has the cubin.
#pragma once

#include "compiler/targets/cuda/nvrtc/KernelCache.h"
#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

namespace lmc::codegen {

struct CudaCode {
  CudaKernel kernel;
  Cubin cubin;
};

// Returns the code of `kernels`, in order. Errors: NVRTC is missing, or a kernel does not compile.
llvm::Expected<std::vector<CudaCode>> compileCuda(std::vector<CudaKernel> kernels,
                                                  llvm::StringRef arch, const KernelCache &cache);

} // namespace lmc::codegen
