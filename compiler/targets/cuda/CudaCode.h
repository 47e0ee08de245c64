// Compiles kernels to cubins on all CPU cores, by NVRTC unless the cache has the cubin.
#pragma once

#include "compiler/kernels/KernelCache.h"
#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

namespace lmc::codegen {

struct CudaCode {
  CudaKernel kernel;
  Cubin cubin;
};

// Returns the key of the kernel's cubin in a cache. `nvrtc` is NVRTC's version.
std::string cubinKey(const CudaKernel &kernel, llvm::StringRef arch, llvm::StringRef nvrtc);

// Convert a cubin to a cache entry, and back. readCubin returns nothing if `entry` is no cubin.
std::string writeCubin(const Cubin &cubin);
std::optional<Cubin> readCubin(llvm::StringRef entry);

// Returns the code of `kernels`, in order. Errors: NVRTC is missing, or a kernel does not compile.
llvm::Expected<std::vector<CudaCode>> compileCuda(std::vector<CudaKernel> kernels,
                                                  llvm::StringRef arch, const KernelCache &cache);

} // namespace lmc::codegen
