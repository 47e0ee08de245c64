// The maths of a kernel as plain C++ loops in f64: what its code is checked against. Printed from
// the region by itself, with nothing of the code generators in between.
#pragma once

#include "dialects/kern/Kern.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// `struct Reference` with `double result(int number, int64_t element)`: an element of a result,
// row-major, from the tensors in `arrays`, of which input i is arrays[i]
// (compiler/extract/text/harness.cu). Sums are computed when they are asked for, once. Error:
// an op that has no place in a kernel.
llvm::Expected<std::string> hostReference(kern::KernelOp kernel);

// Integers that are inputs of `kernel` are below this: the least extent that they are an index
// of, or the largest of all.
int64_t integerBound(kern::KernelOp kernel);

// Whether an input of a kernel has positive values alone: scalars (rates, norms, counts), and the
// scales of codes in 8 bits.
bool isPositive(mlir::BlockArgument input);

// The coarsest type that a value on the way from the inputs to `result`, one of a kernel, is
// rounded to.
mlir::FloatType precisionOf(mlir::Value result);

} // namespace lmc
