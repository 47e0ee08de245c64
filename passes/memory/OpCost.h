// The cost of recomputing an op of a layer's forward pass, and the rule that says which ops may be
// recomputed.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "mlir/IR/Operation.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace lmc {

// The seconds that recomputing an op adds to the backward pass. For an op that is free to
// recompute, these are the seconds that it adds to the kernel of its gradient.
using OpCost = llvm::function_ref<double(mlir::Operation *)>;

// Returns true if the op's result consists of all bytes of its operand in another shape, or of some
// of these bytes.
bool isView(mlir::Operation *op);

// Returns true if the backward pass needs no additional kernel to recompute the op. This holds for
// views, and for the activation and the norms: the kernels of their gradients read the same
// operands and can also write the recomputed value.
bool isFreeToRecompute(mlir::Operation *op);

// Returns true if the op may be recomputed. Collectives may not, because every rank would have to
// repeat them; the all-gather of tokens along `expert` is excepted, because it saves much memory.
// Ops with side effects, and ops whose results differ each time, may not be recomputed.
bool mayRecompute(mlir::Operation *op);

// Returns the FLOPs of a matrix product (2mnk) or of attention (over the keys that causal queries
// see), as models/decoder/Counts.cpp counts them; 0 for other ops. The gradients of the op take
// twice as many.
double forwardFlops(mlir::Operation *op);

// Returns the predicted seconds to recompute an op on a device with these rates. Attention has half
// the rate of matrix products. Every other op takes the time to read and write its bytes; an op
// that is free to recompute takes only the time to write them, and a view takes no time.
double modelledSeconds(mlir::Operation *op, const cost::Rates &rates = cost::kDefaultRates);

// Returns the bytes of a tensor or scalar.
uint64_t bytesOf(mlir::Value value);

} // namespace lmc
