// Element types in CUDA C++.
#pragma once

#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinTypes.h"

#include <optional>

namespace lmc::codegen {

// "bf16"
const char *shortName(DataType type);

// As kernels write it: "lmc::bf16", "float".
const char *cudaName(DataType type);

// Of an element.
int64_t bytesOf(DataType type);

// None for null, integers and floats of other widths.
std::optional<DataType> dataTypeOf(mlir::Type element);

} // namespace lmc::codegen
