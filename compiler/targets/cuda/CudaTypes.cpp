#include "compiler/targets/cuda/CudaTypes.h"

namespace lmc::codegen {

const char *shortName(DataType type) {
  return type == DataType::F32 ? "f32" : type == DataType::F64 ? "f64" : "bf16";
}

const char *cudaName(DataType type) {
  return type == DataType::F32 ? "float" : type == DataType::F64 ? "double" : "lmc::bf16";
}

std::optional<DataType> dataTypeOf(mlir::Type element) {
  if (element && element.isF32())
    return DataType::F32;
  if (element && element.isBF16())
    return DataType::BF16;
  if (element && element.isF64())
    return DataType::F64;
  return std::nullopt;
}

} // namespace lmc::codegen
