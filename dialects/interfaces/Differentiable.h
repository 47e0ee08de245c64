// Reverse-mode differentiation as an op interface.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "dialects/interfaces/Differentiable.h.inc"
