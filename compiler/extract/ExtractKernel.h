// Extracts a CUDA kernel of a plan as a separate program that checks and times it.
#pragma once

#include "compiler/cost/PlanCost.h"

#include "plan_generated.h"

#include "mlir/IR/MLIRContext.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// Returns CUDA C++ that nvcc compiles without any other file of lmc. It contains the kernel named
// `name`, the device library, and a main() that runs the kernel on random values, compares the
// results with plain loops (for attention: with plain kernels) and measures the time. main() draws
// the inputs on the device and fills the results with 0xff bytes before the kernel runs. `costs`
// are the predicted costs of the plan's kernels, in their order, which main() prints beside the
// measured times; they may be empty. If a command has several kernels, the program contains all of
// them, because they only work together. A kernel of initial values runs on the largest variable
// that uses it. The program exits with 0 if all values are right. Errors: an unknown kernel, a
// kernel without CUDA code, or one that the plan never launches.
llvm::Expected<std::string> extractKernel(const plan::Plan &plan, llvm::StringRef name,
                                          llvm::ArrayRef<cost::KernelCost> costs,
                                          mlir::MLIRContext &context);

} // namespace lmc
