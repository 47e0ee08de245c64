// Reverse-mode differentiation as an op interface.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

namespace lmc {

// The gradients of an op's operands, or a failure whose error has been reported.
using Gradients = mlir::FailureOr<llvm::SmallVector<mlir::Value>>;

} // namespace lmc

#include "dialects/interfaces/Differentiable.h.inc"
