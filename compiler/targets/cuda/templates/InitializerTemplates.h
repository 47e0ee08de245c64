// Generates the kernels that write the initial values of variables, from initialize.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc::codegen {

// The constants in an initializer kernel's source. Seeds, sizes and other values are arguments.
struct InitializerShape {
  lm::InitKind kind = lm::InitKind::Constant; // None, Zeros: no kernel; Ones is a Constant of 1
  DataType destination = DataType::F32;       // element type of the variable
  DataType source = DataType::F32; // for CopyOf: element type of the variable that is copied
  std::vector<double> frequencies; // for RopeCos, RopeSin: radians per position, for each column
};

// Returns a text that identifies the shape.
std::string initializerKey(const InitializerShape &shape);

// Returns the kernel. Its arguments are an InitializerRecord, source (only for CopyOf) and result.
CudaKernel initializerKernel(const InitializerShape &shape, const std::string &name);

// Returns the traffic of a launch that writes `elements` elements. CudaKernel::bytes stays 0,
// because one kernel serves variables of every size.
GlobalBytes initializerBytes(const InitializerShape &shape, int64_t elements);

// Returns the shape for the initializer `init`, which writes elements of type `destination`. A copy
// reads elements of type `source`. Returns nothing if no kernel is needed: for zeros, and for
// values that the runtime writes.
std::optional<InitializerShape> initializerShape(lm::InitAttr init, mlir::Type destination,
                                                 mlir::Type source);

// Returns the initializer kernels of a plan's variables, each once, as (initializerKey(), kernel).
std::vector<std::pair<std::string, CudaKernel>> initializerKernels(mlir::ModuleOp plan);

} // namespace lmc::codegen
