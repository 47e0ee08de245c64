// The launches and the scratch memory of commands that template kernels compute.
#pragma once

#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"
#include "ground/plan/CommandList.inc"

#include <vector>

namespace lmc::codegen {

// A launch of a kernel. Null inputs are left out of its arguments.
struct TemplateLaunch {
  CudaKernel kernel;
  llvm::SmallVector<mlir::Value> inputs, results;
};

// templatesOf() returns the launches that compute a command, in their order, and scratchOf() the
// type of the scratch memory that they need; null for none. Both are defined in a file of this
// folder, for each command that has `cuda` in ground/plan/commands.toml, and for scatter_add.
#define LMC_DECLARE(Name)                                                                          \
  std::vector<TemplateLaunch> templatesOf(plan_ir::Name##Op op, const CudaArch &arch);             \
  mlir::RankedTensorType scratchOf(kern::Name##Op op);
LMC_COMMANDS_OF_TEMPLATES(LMC_DECLARE)
LMC_DECLARE(ScatterAdd)
#undef LMC_DECLARE

// Returns a launch on all that the command reads and writes, in the order of its table, without the
// workspace.
TemplateLaunch onOperands(CudaKernel kernel, CommandOpInterface op);

// Returns the type of scratch memory of this size.
mlir::RankedTensorType bytesType(mlir::Operation *op, int64_t bytes);

// Returns the type of an operand of a command: of a tensor (kern) or of the tensor in a slice
// (plan).
inline mlir::RankedTensorType contentOf(mlir::Value operand) {
  if (auto slice = mlir::dyn_cast<plan_ir::SliceType>(operand.getType()))
    return slice.getContent();
  return mlir::cast<mlir::RankedTensorType>(operand.getType());
}

} // namespace lmc::codegen
