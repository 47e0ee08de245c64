// The compiler passes that turn kernels into CPU code.
#pragma once

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace lmc::codegen {

#define GEN_PASS_DECL
#include "compiler/targets/cpu/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "compiler/targets/cpu/Passes.h.inc"

// Adds to `manager` kern-lower-kernels and MLIR's conversions to the LLVM dialect.
void buildKernelsToLLVM(mlir::OpPassManager &manager, const LowerKernelsPassOptions &options);

} // namespace lmc::codegen
