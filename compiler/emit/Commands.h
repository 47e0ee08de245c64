// Converts commands of the plan dialect to tables of the plan file.
#pragma once

#include "compiler/kernels/Target.h"
#include "plan_generated.h"

#include "mlir/IR/Operation.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <memory>

namespace lmc {

// The indices, in the plan file, of the kernels and slices that commands refer to.
struct PlanNumbers {
  llvm::StringMap<uint32_t> kernels; // by the kernel's symbol
  // The fields below are about the function whose commands are being emitted.
  llvm::DenseMap<mlir::Value, uint32_t> slices;
  // For each slice that an async collective is writing: the index of the collective's command.
  llvm::DenseMap<mlir::Value, uint32_t> started;
  // True if async collectives along the axis `replicate` have a stream of their own.
  bool hasTwoCollectiveStreams = false;
};

// Returns the plan file's table for `command`. `code` has the kernels that the command launches.
// Reports an error if the op is not a command.
mlir::FailureOr<std::unique_ptr<plan::CommandT>>
emitCommand(mlir::Operation &command, const PlanNumbers &numbers, const codegen::TargetCode &code);

} // namespace lmc
