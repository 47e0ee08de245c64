// The launches and the scratch memory of commands that template kernels compute.
#pragma once

#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"
#include "ground/plan/CommandList.inc"

#include <vector>

namespace lmc::codegen {

// A launch of a kernel, whose arguments do not include null inputs.
struct TemplateLaunch {
  CudaKernel kernel;
  llvm::SmallVector<mlir::Value> inputs, results;
};

// Returns the launches that compute a command, in order. A file of this folder defines the function
// for each command with `cuda` in ground/plan/commands.toml, and for scatter_add.
#define LMC_DECLARE(Name)                                                                          \
  std::vector<TemplateLaunch> templatesOf(plan_ir::Name##Op op, const CudaArch &arch);
LMC_COMMANDS_OF_TEMPLATES(LMC_DECLARE)
LMC_DECLARE(ScatterAdd)
#undef LMC_DECLARE

// Returns the type of the scratch memory of the launches. The other commands need none.
mlir::RankedTensorType scratchOf(kern::RouteOp op);
mlir::RankedTensorType scratchOf(kern::SortRowsOp op);
mlir::RankedTensorType scratchOf(kern::ScatterAddOp op);

// Returns a launch on the command's operands except the workspace, in the order of its table.
TemplateLaunch onOperands(CudaKernel kernel, CommandOpInterface op);

// Returns the type of a scratch memory of `bytes` bytes.
mlir::RankedTensorType bytesType(mlir::Operation *op, int64_t bytes);

// Returns the type of an operand's tensor (kern), or of the tensor in its slice (plan).
inline mlir::RankedTensorType contentOf(mlir::Value operand) {
  if (auto slice = mlir::dyn_cast<plan_ir::SliceType>(operand.getType()))
    return slice.getContent();
  return mlir::cast<mlir::RankedTensorType>(operand.getType());
}

} // namespace lmc::codegen
