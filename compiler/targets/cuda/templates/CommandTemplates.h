// Returns the launches and the scratch memory of commands whose kernels come from templates.
#pragma once

#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"
#include "ground/plan/CommandList.inc"

#include <vector>

namespace lmc::codegen {

// A launch of a kernel. If a value in `inputs` is null, the kernel has no argument for it.
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

// Returns the type of the scratch memory for a command's launches. cudaScratchOf() has a case for
// each command that needs scratch memory.
mlir::RankedTensorType scratchOf(kern::RouteOp op);
mlir::RankedTensorType scratchOf(kern::SortRowsOp op);
mlir::RankedTensorType scratchOf(kern::ScatterAddOp op);

// Returns a launch with all operands of the command except its scratch memory.
TemplateLaunch onOperands(CudaKernel kernel, CommandOpInterface op);

// Returns `value`, rounded to f32, as a literal of CUDA.
std::string real(double value);

// Returns the type of a scratch memory of `bytes` bytes.
mlir::RankedTensorType bytesType(mlir::Operation *op, int64_t bytes);

// Returns the type of the tensor that a kern op's operand is, or that a plan op's slice holds.
inline mlir::RankedTensorType contentOf(mlir::Value operand) {
  if (auto slice = mlir::dyn_cast<plan_ir::SliceType>(operand.getType()))
    return slice.getContent();
  return mlir::cast<mlir::RankedTensorType>(operand.getType());
}

} // namespace lmc::codegen
