// The names and sizes of element types in CUDA C++.
#pragma once

#include "ground/config/Config.h"

#include "mlir/IR/BuiltinTypes.h"

#include <optional>

namespace lmc::codegen {

// Returns the name used in names of kernels and in comments: "bf16", "f32".
const char *shortName(DataType type);

// Returns the C++ name used in kernels: "lmc::bf16", "float".
const char *cudaName(DataType type);

// Returns the DataType of f32, bf16 or f64, or nothing for another type. `element` may be null.
std::optional<DataType> dataTypeOf(mlir::Type element);

} // namespace lmc::codegen
