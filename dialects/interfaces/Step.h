// An op interface for the pass (forward or backward) and the layer of an op in a training step.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "dialects/interfaces/Step.h.inc"

namespace lmc {

// Returns true if `op` belongs to the backward pass. An op without StepOpInterface, such as a view,
// belongs to no pass.
bool isBackward(mlir::Operation *op);

// Gives `op` the pass and the layer of `like`. Does nothing unless both ops have StepOpInterface.
void setStep(mlir::Operation *op, mlir::Operation *like);

} // namespace lmc
