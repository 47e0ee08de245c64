// The launches of commands that template kernels compute.
#pragma once

#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "dialects/plan/Plan.h"
#include "ground/plan/CommandList.inc"

#include <vector>

namespace lmc::codegen {

// A launch of a kernel. Null inputs are left out of its arguments.
struct TemplateLaunch {
  CudaKernel kernel;
  llvm::SmallVector<mlir::Value> inputs, results;
};

// Returns the launches that compute a command, in their order. Each command that has `cuda` in
// ground/plan/commands.toml is defined in a file of this folder.
#define LMC_DECLARE(Name)                                                                          \
  std::vector<TemplateLaunch> templatesOf(plan_ir::Name##Op op, const CudaArch &arch);
LMC_COMMANDS_OF_TEMPLATES(LMC_DECLARE)
#undef LMC_DECLARE

// Returns a launch on all that the command reads and writes, in the order of its table, without the
// workspace.
TemplateLaunch onOperands(CudaKernel kernel, CommandOpInterface op);

// Returns the tensor in a slice.
inline mlir::RankedTensorType contentOf(mlir::Value slice) {
  return mlir::cast<plan_ir::SliceType>(slice.getType()).getContent();
}

} // namespace lmc::codegen
