// The kernels that make the first values of a plan's variables on a CUDA device, from
// compiler/targets/cuda/device/initialize.cuh. plan.fbs (Initializer) says what they are given.
#pragma once

#include "compiler/config/Config.h"
#include "compiler/targets/cuda/CudaKernel.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc::codegen {

enum class InitializerKind { Normal, Constant, RopeCos, RopeSin, Copy };

// What a kernel is made for; seeds, sizes, deviations and scales are given when it runs.
struct InitializerShape {
  InitializerKind kind = InitializerKind::Constant;
  DataType destination = DataType::F32;
  DataType source = DataType::F32; // Copy only
  std::vector<double> frequencies; // rope tables only: one per column, radians per position
};

// Equal for equal shapes only: "initialize_normal_f32".
std::string initializerKernelName(const InitializerShape &shape);

// Its arguments are the record, the source (Copy only) and the result.
CudaKernel initializerKernel(const InitializerShape &shape);

// What a launch moves for a variable of `elements`: the record and the source are read, the
// values written. CudaKernel::bytes is empty, for a kernel serves variables of every size.
GlobalBytes initializerBytes(const InitializerShape &shape, int64_t elements);

// The shape for an initialiser of a plan.variable or of a part of one, `init`, that makes
// elements of type `destination`, for copies from `source`. None where no kernel is needed:
// values that the runtime writes, and zeros.
std::optional<InitializerShape> initializerShape(mlir::DictionaryAttr init, mlir::Type destination,
                                                 mlir::Type source);

// All that the variables of a plan need, each once.
std::vector<CudaKernel> initializerKernels(mlir::ModuleOp plan);

} // namespace lmc::codegen
