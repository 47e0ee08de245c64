// The last phase: the plan dialect and the kernels' image become the plan file.
#pragma once

#include "compiler/codegen/CpuObject.h"
#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace lmc {

// Serializes `module` (plan level, with its kern.kernel ops) into the bytes of a plan
// file: the FlatBuffer of runtime/plan/plan.fbs and its trailer.
mlir::LogicalResult emitPlan(mlir::ModuleOp module, const Config &config,
                             const codegen::CpuImage &image, std::string &bytes);

// What a checkpoint must agree on to be loaded: names, shapes and dtypes of all
// parameters and moments, and the optimizer. 16 hexadecimal digits.
std::string modelFingerprint(mlir::ModuleOp module, const Config &config);

} // namespace lmc
