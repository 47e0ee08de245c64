// Prints the formulas of a kernel as plain C++ loops in f64, with which the kernel's results are
// compared. Prints them directly from the kernel region, independently of the code generators.
#pragma once

#include "dialects/kern/Kern.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// Returns the C++ text of a `struct Reference`. Its function `double result(int number, int64_t
// element)` returns one element (row-major index) of result number `number`. Input number i of the
// kernel is arrays[i] (compiler/extract/text/harness.cu). The struct computes each sum once, when
// result() first needs it. Fails for an op that kernels may not contain.
llvm::Expected<std::string> hostReference(kern::KernelOp kernel);

// Returns an upper limit (exclusive) for the random values of integer inputs of `kernel`: the
// smallest extent that an integer input is an index into; if there is no such input, the largest
// extent of all inputs.
int64_t integerBound(kern::KernelOp kernel);

// Returns true if the random values of an input must be positive: scalars (rates, norms, counts)
// and the scales of 8-bit codes.
bool isPositive(mlir::BlockArgument input);

// Returns the least precise type to which any value on the way from the inputs to the kernel's
// result `result` is rounded.
mlir::FloatType precisionOf(mlir::Value result);

} // namespace lmc
