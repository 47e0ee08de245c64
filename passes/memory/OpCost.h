// The cost of recomputing an op of a layer's forward pass, and the ops for which that is allowed.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "mlir/IR/Operation.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace lmc {

// Seconds that recomputing an op adds to the backward pass. For an op that is free to recompute,
// these are the seconds that it adds to the kernel of its gradient.
using OpCost = llvm::function_ref<double(mlir::Operation *)>;

// Returns true if the result consists of bytes of the operand: all of them under another shape, or
// some.
bool isView(mlir::Operation *op);

// Returns true if recomputing the op needs no kernel of its own in the backward pass. Such ops are
// views, the activation and the norms: the gradients of the latter two read the same operands, so
// that one kernel also writes the recomputed value.
bool isFreeToRecompute(mlir::Operation *op);

// Returns false for collectives, which every rank would have to repeat, and for ops that have side
// effects or give another result each time.
bool mayRecompute(mlir::Operation *op);

// Returns the floating-point operations of a matrix product (2mnk) or of attention (over the keys
// that causal queries see), as models/Flops.cpp counts them; 0 for other ops. The gradients of the
// op take twice as many.
double forwardFlops(mlir::Operation *op);

// An OpCost for a device with these rates: attention runs at half the rate of matrix products;
// every other op takes the time to read and write its bytes.
double modelledSeconds(mlir::Operation *op, const cost::Rates &rates = cost::kDefaultRates);

// Returns the bytes of a tensor or scalar.
uint64_t bytesOf(mlir::Value value);

} // namespace lmc
