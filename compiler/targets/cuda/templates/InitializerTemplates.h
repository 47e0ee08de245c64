// Generates the kernels that write the initial values of a plan's variables on a CUDA device, from
// compiler/targets/cuda/device/initialize.cuh. plan.fbs (Initializer) describes their arguments.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc::codegen {

// The properties that an initializer kernel's text fixes. Seeds, sizes, standard deviations and
// scales are arguments of the kernel instead.
struct InitializerShape {
  lm::InitKind kind = lm::InitKind::Constant; // never None or Zeros (no kernel); Ones is Constant
  DataType destination = DataType::F32;       // element type of the variable
  DataType source = DataType::F32; // for CopyOf: element type of the variable that is copied
  std::vector<double> frequencies; // for RopeCos, RopeSin: radians per position, for each column
};

// Returns a text that identifies the shape.
std::string initializerKey(const InitializerShape &shape);

// Returns the kernel `name` for `shape`. Its arguments are the record (InitializerRecord), the
// source (only for CopyOf) and the result.
CudaKernel initializerKernel(const InitializerShape &shape, const std::string &name);

// Returns the traffic of a launch for a variable of `elements` elements: reads of the record and
// the source, and writes of the values. CudaKernel::bytes is empty because one kernel serves
// variables of every size.
GlobalBytes initializerBytes(const InitializerShape &shape, int64_t elements);

// Returns the shape for `init`, the initializer of a plan.variable or of a part of one. The
// variable's elements have the type `destination`; a copy reads elements of type `source`. Returns
// nothing if no kernel is needed: for zeros, and for values that the runtime writes.
std::optional<InitializerShape> initializerShape(lm::InitAttr init, mlir::Type destination,
                                                 mlir::Type source);

// Returns all initializer kernels that the variables of a plan need, each once, with its
// initializerKey() and a unique name ("initialize_normal_f32").
std::vector<std::pair<std::string, CudaKernel>> initializerKernels(mlir::ModuleOp plan);

} // namespace lmc::codegen
