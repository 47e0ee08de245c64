// All CUDA kernels of a plan: those of its kern.kernel ops, and the templates' for its typed
// commands and the first values of its variables.
#pragma once

#include "compiler/targets/cuda/KernelCache.h"
#include "compiler/targets/cuda/CudaKernel.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/StringMap.h"

#include <vector>

namespace lmc::codegen {

struct CudaProgram {
  struct Kernel {
    CudaKernel cuda;
    kern::KernelOp op;    // what it was printed from; null for a template's
    std::string sourceOp; // of a template's: "lm.attention"; "" for first values
    Cubin cubin;          // without an image until compileProgram ran
  };
  struct Launch {
    size_t kernel;
    llvm::SmallVector<mlir::Value> args; // slices; the first `inputs` are only read
    uint32_t inputs;
  };

  std::vector<Kernel> kernels; // the module's first, in its order; equal ones of templates once
  llvm::DenseMap<mlir::Operation *, std::vector<Launch>> launches; // of typed commands, in order
  llvm::StringMap<size_t> initializers; // by name, as initializerKernelName has it
};

// The kernels that `module`, a plan with its kern.kernel ops, needs. Failure, with an error at
// the op, for what cannot be printed or has no template.
mlir::FailureOr<CudaProgram> planCudaProgram(mlir::ModuleOp module, const CudaArch &arch);

// Gives every kernel its cubin.
llvm::Error compileProgram(CudaProgram &program, const CudaArch &arch, const KernelCache &cache);

} // namespace lmc::codegen
