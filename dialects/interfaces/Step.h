// The pass (forward or backward) and the layer of an op of a training step, as an op interface.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "dialects/interfaces/Step.h.inc"

namespace lmc {

// Returns true if `op` has StepOpInterface and belongs to the backward pass. A view, such as
// tensor.extract_slice, does not have StepOpInterface and belongs to no pass.
bool isBackward(mlir::Operation *op);

// Gives `op` the pass and the layer of `like`. Does nothing unless both ops have StepOpInterface.
void setStep(mlir::Operation *op, mlir::Operation *like);

} // namespace lmc
