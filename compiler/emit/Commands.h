// Commands of the plan dialect as tables of the plan file.
#pragma once

#include "compiler/kernels/Target.h"
#include "plan_generated.h"

#include "mlir/IR/Operation.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <memory>

namespace lmc {

// The numbers that a plan file has for what its commands name.
struct PlanNumbers {
  llvm::StringMap<uint32_t> kernels;            // by symbol
  llvm::DenseMap<mlir::Value, uint32_t> slices; // of the function whose commands are emitted
};

// The table of `command`, with the kernels that `code` launches for it. Failure, with an error at
// the op, where it is no command.
mlir::FailureOr<std::unique_ptr<plan::CommandT>>
emitCommand(mlir::Operation &command, const PlanNumbers &numbers, const codegen::TargetCode &code);

} // namespace lmc
