// Prints the formulas of a kernel as plain C++ loops in f64, to check the kernel's results. Reads
// the kernel region and uses no code generator.
#pragma once

#include "dialects/kern/Kern.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// Returns the C++ text of a `struct Reference`. Its function `double result(int number, int64_t
// element)` returns one element (row-major index) of result number `number`. Input number i is
// arrays[i] (compiler/extract/text/harness.cu). Error: an op that kernels may not contain.
llvm::Expected<std::string> hostReference(kern::KernelOp kernel);

// Returns an exclusive upper limit for the random values of integer inputs. It is the smallest size
// of the dimensions that these values index, or the largest size if they index none.
int64_t integerBound(kern::KernelOp kernel);

// Returns true for inputs with positive random values: float scalars, and scales of 8-bit codes.
bool isPositive(mlir::BlockArgument input);

// Returns the least precise type to which any value between the inputs and `result` is rounded.
mlir::FloatType precisionOf(mlir::Value result);

} // namespace lmc
