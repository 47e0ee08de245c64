// Prints the formulas of a kernel as plain C++ loops in f64, the reference that its results are
// compared with. They are printed directly from the kernel region, independently of the code
// generators.
#pragma once

#include "dialects/kern/Kern.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// Returns the C++ text of a `struct Reference`. Its function `double result(int number, int64_t
// element)` returns one element (row-major index) of result number `number`. Input number i of the
// kernel is arrays[i] (compiler/extract/text/harness.cu). Each sum is computed once, when it is
// first needed. Fails for an op that kernels may not contain.
llvm::Expected<std::string> hostReference(kern::KernelOp kernel);

// Returns an upper limit (exclusive) for the random values of integer inputs of `kernel`: the
// smallest extent that an integer input indexes; if none is an index, the largest extent of all
// inputs.
int64_t integerBound(kern::KernelOp kernel);

// Returns true if the random values of an input must be positive: for scalars (rates, norms,
// counts), and for the scales of 8-bit codes.
bool isPositive(mlir::BlockArgument input);

// Returns the least precise type to which any value is rounded on the way from the inputs to
// `result`, a result of a kernel.
mlir::FloatType precisionOf(mlir::Value result);

} // namespace lmc
