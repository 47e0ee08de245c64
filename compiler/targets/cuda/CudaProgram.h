// All CUDA kernels of a plan: those printed from its kern.kernel ops, and those of templates.
#pragma once

#include "compiler/kernels/KernelCache.h"
#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/StringMap.h"

#include <vector>

namespace lmc::codegen {

struct CudaProgram {
  struct Kernel {
    CudaKernel cuda;
    kern::KernelOp op;    // the op that the kernel was printed from; null for a template
    std::string sourceOp; // for a template: "lm.attention"; "" for initial values
    Cubin cubin;          // empty until compileProgram() has run
  };
  using Launch = TargetCode::Launch;

  std::vector<Kernel> kernels; // the module's kernels in order, then templates, each once
  llvm::DenseMap<mlir::Operation *, std::vector<Launch>> launches; // a command's launches, in order
  llvm::StringMap<size_t> initializers; // initializerKey() of a shape -> index of its kernel
};

// Returns the kernels that a plan needs, not yet compiled. `module` has the plan and its
// kern.kernel ops. Fails with an error at an op that cannot be printed or has no template.
mlir::FailureOr<CudaProgram> planCudaProgram(mlir::ModuleOp module, const CudaArch &arch,
                                             LongRows longRows = LongRows::Shared);

// Returns the type of the scratch memory that the command `op` needs; null if it needs none.
//
// cuBLASLt may cut the sum over k of a matrix product d[m,n] into parts, so that a product with few
// tiles keeps all SMs busy. The scratch memory holds the sums of each part, as f32 (f64 for f64). A
// part has at least 64 of the k terms (the depth of a tile), so the scratch memory has
//
//   min(gemmBytes, ceil(k / 64) m n * bytes of a sum)   bytes.
mlir::RankedTensorType cudaScratchOf(mlir::Operation *op, uint64_t gemmBytes);

// Compiles every kernel that has no cubin yet.
llvm::Error compileProgram(CudaProgram &program, const CudaArch &arch, const KernelCache &cache);

} // namespace lmc::codegen
