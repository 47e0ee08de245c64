// Extracts a CUDA kernel of a plan as a separate program that checks and times it.
#pragma once

#include "compiler/cost/PlanCost.h"

#include "plan_generated.h"

#include "mlir/IR/MLIRContext.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// Returns a CUDA C++ program that nvcc compiles without any other file of lmc. It runs the kernel
// named `name` on random values, compares the results with plain loops (for attention: with plain
// kernels) and measures the time. It exits with 0 if all values are right.
//
// If a command needs several kernels, the program has all of them. A kernel that writes initial
// values runs on the largest variable that uses it. The program prints the predicted costs of the
// plan's kernels, `costs`, beside the measured times; `costs` may be empty. Errors: an unknown
// kernel, a kernel without CUDA code, or one that the plan never launches.
llvm::Expected<std::string> extractKernel(const plan::Plan &plan, llvm::StringRef name,
                                          llvm::ArrayRef<cost::KernelCost> costs,
                                          mlir::MLIRContext &context);

} // namespace lmc
