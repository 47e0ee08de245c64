// Element types in CUDA C++.
#pragma once

#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinTypes.h"

#include <optional>

namespace lmc::codegen {

// Returns the short name: "bf16".
const char *shortName(DataType type);

// Returns the name in kernels: "lmc::bf16", "float".
const char *cudaName(DataType type);

// Returns the bytes of an element.
int64_t bytesOf(DataType type);

// Returns nothing for null, integers and floats of other widths.
std::optional<DataType> dataTypeOf(mlir::Type element);

} // namespace lmc::codegen
