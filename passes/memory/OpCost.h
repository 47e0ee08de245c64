// What running an op of a layer's forward pass again costs, and which ops may be.
#pragma once

#include "mlir/IR/Operation.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace lmc {

// Seconds that running an op of the forward pass again adds to the backward pass. For an op
// that is free to recompute that is what it adds to the kernel of its gradient.
using OpCost = llvm::function_ref<double(mlir::Operation *)>;

// The result is the operand's bytes under another shape, or some of them.
bool isView(mlir::Operation *op);

// Needs no kernel of its own in the backward pass: views; the activation and the norms, whose
// gradients read the same operands, so that one kernel writes the recomputed value too.
bool isFreeToRecompute(mlir::Operation *op);

// False for collectives, which every rank would have to run again, and for ops with effects
// or with another result each time.
bool mayRecompute(mlir::Operation *op);

// Floating-point operations of matrix products (2mnk) and of attention (the keys that causal
// queries see), as models/Flops.cpp counts them; 0 for other ops. A forward op's gradients
// take twice as many.
double forwardFlops(mlir::Operation *op);

// What an H100 SXM sustains: of 989 TFLOP/s in dense bf16 and of 3.35 TB/s (NVIDIA's data sheet)
// about 70% in large GEMMs and 90% in streaming kernels.
inline constexpr double kH100FlopsPerSecond = 700e12, kH100BytesPerSecond = 3.0e12;

// An OpCost for a device that does `flopsPerSecond` in matrix products, half as many in
// attention, and everything else as fast as it reads and writes `bytesPerSecond`.
double modelledSeconds(mlir::Operation *op, double flopsPerSecond = kH100FlopsPerSecond,
                       double bytesPerSecond = kH100BytesPerSecond);

// Bytes of a tensor; of a scalar those of its type.
uint64_t bytesOf(mlir::Value value);

} // namespace lmc
