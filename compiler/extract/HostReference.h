// Prints the formulas of a kernel as plain C++ loops in f64, as the reference for its code. They
// are printed directly from the region, independently of the code generators.
#pragma once

#include "dialects/kern/Kern.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// Returns a `struct Reference` with `double result(int number, int64_t element)`, which returns an
// element (row-major) of a result. Input i is arrays[i] (compiler/extract/text/harness.cu). Each
// sum is computed once, when it is first needed. Fails for an op that kernels may not contain.
llvm::Expected<std::string> hostReference(kern::KernelOp kernel);

// Returns an upper limit for the integer inputs of `kernel`: the smallest extent that one of them
// indexes, or the largest extent of all inputs if none is an index.
int64_t integerBound(kern::KernelOp kernel);

// Returns true if an input of a kernel must be positive: scalars (rates, norms, counts), and the
// scales of 8-bit codes.
bool isPositive(mlir::BlockArgument input);

// Returns the least precise type that a value between the inputs and `result`, a result of a
// kernel, is rounded to.
mlir::FloatType precisionOf(mlir::Value result);

} // namespace lmc
