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

// Returns an exclusive upper limit for the random values of integer inputs. It is the smallest
// extent of a dimension that an integer input indexes, or else the largest extent of any input.
int64_t integerBound(kern::KernelOp kernel);

// Returns true if random values of the input must be positive: a scalar, or scales of 8-bit codes.
bool isPositive(mlir::BlockArgument input);

// Returns the least precise type to which any value between the inputs and `result` is rounded.
mlir::FloatType precisionOf(mlir::Value result);

} // namespace lmc
