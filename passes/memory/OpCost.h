// Says which ops of a layer's forward pass may be recomputed, and what recomputing them costs.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "mlir/IR/Operation.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace lmc {

// The seconds that recomputing an op adds to the backward pass.
using OpCost = llvm::function_ref<double(mlir::Operation *)>;

// Returns true if the op's result is all or some of the bytes of its operand.
bool isView(mlir::Operation *op);

// Returns true if the backward pass needs no additional kernel to recompute the op. This holds for
// views, the activation and the norms. The kernels that compute their gradients read the op's
// operands anyway, and can also write the recomputed value. Codes in another layout than that of
// the forward pass count as free, too, though each takes a small kernel, and so does the activation
// where the kernel of its gradient casts that to 8-bit floats.
bool isFreeToRecompute(mlir::Operation *op);

// Returns true if the op may be recomputed: it has no side effects and is no collective. One
// collective may be recomputed, too: the all-gather of tokens along `expert`. Its result is large.
bool mayRecompute(mlir::Operation *op);

// Returns the FLOPs of a matrix product (2mnk) or of attention; 0 for other ops. In attention, a
// query counts only the keys that the causal mask allows, as in models/decoder/Counts.cpp. The
// gradients of the op take twice as many FLOPs.
double forwardFlops(mlir::Operation *op);

// Predicts the seconds to recompute an op on a device with these rates. Attention computes half as
// many FLOPs per second as a matrix product. Other ops take the time to read and write their bytes.
// Ops that are free to recompute take only the time to write their results, but for those that
// change the layout of codes; views take no time.
double modelledSeconds(mlir::Operation *op, const cost::Rates &rates = cost::kDefaultRates);

// Returns the bytes of a tensor or scalar.
uint64_t bytesOf(mlir::Value value);

} // namespace lmc
