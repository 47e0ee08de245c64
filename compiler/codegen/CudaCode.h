// Many kernels to cubins: from the cache, or by NVRTC on all cores.
#pragma once

#include "compiler/codegen/KernelCache.h"
#include "compiler/codegen/Nvrtc.h"

namespace lmc::codegen {

// The cubin of each of `kernels`; equal ones are compiled once. Errors: no NVRTC, or a kernel
// that does not compile (the first of them in `kernels`).
llvm::Expected<std::vector<Cubin>> compileCuda(llvm::ArrayRef<const CudaKernel *> kernels,
                                               llvm::StringRef arch, const KernelCache &cache);

} // namespace lmc::codegen
