// The scratch memory that a command needs beside its operands and results.
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace lmc {

// Whose kernels and libraries run the commands.
enum class BufferTarget { Cpu, Cuda };

// The type of the scratch memory that `op`, of the kern dialect, needs on the target; null where
// it needs none.
mlir::RankedTensorType scratchTypeOf(mlir::Operation *op, BufferTarget target);

} // namespace lmc
