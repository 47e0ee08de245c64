#include "compiler/targets/cuda/CudaTypes.h"

namespace lmc::codegen {

const char *shortName(DataType type) {
  switch (type) {
  case DataType::F32:
    return "f32";
  case DataType::BF16:
    return "bf16";
  case DataType::F64:
    return "f64";
  }
  llvm_unreachable("an element type");
}

const char *cudaName(DataType type) {
  switch (type) {
  case DataType::F32:
    return "float";
  case DataType::BF16:
    return "lmc::bf16";
  case DataType::F64:
    return "double";
  }
  llvm_unreachable("an element type");
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
