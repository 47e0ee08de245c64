// A kernel of a plan for CUDA as a program of its own.
#pragma once

#include "plan_generated.h"

#include "mlir/IR/MLIRContext.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// CUDA C++ that nvcc compiles without anything of lmc: the kernel named `name` with the device
// library in it, and a main() that runs it on random values, compares with plain loops (or, for
// attention, plain kernels) and measures. A kernel of a command with several comes with the
// others, as they only make sense together; one of first values makes those of the largest
// variable that needs it. The program exits with 0 if all values are right. Errors: no such
// kernel, one without CUDA code, or one that the plan has no use for.
llvm::Expected<std::string> extractKernel(const plan::Plan &plan, llvm::StringRef name,
                                          mlir::MLIRContext &context);

} // namespace lmc
