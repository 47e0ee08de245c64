// Types of tensors and of variables, and ops that reshape, cut and fill tensors.
#pragma once

#include "dialects/lm/Lm.h"

namespace lmc {

inline mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline mlir::RankedTensorType tensorTypeOf(lm::VariableOp variable) {
  return mlir::cast<mlir::RankedTensorType>(variable.getType());
}

inline int64_t extent(mlir::Value value, unsigned dim) {
  return tensorTypeOf(value).getDimSize(dim);
}

inline mlir::RankedTensorType resized(mlir::RankedTensorType type, unsigned dim, int64_t size) {
  llvm::SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return type.clone(shape);
}

// Returns a view of `value` in another shape.
mlir::Value reshape(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                    llvm::ArrayRef<int64_t> shape);

// Returns the part of `source` that has type `type` and begins at the indices `offsets`.
mlir::Value slice(mlir::OpBuilder &b, mlir::Location loc, mlir::RankedTensorType type,
                  mlir::Value source, llvm::ArrayRef<int64_t> offsets);

// Returns rows [offset, offset + count) of a matrix, or these elements of a vector.
mlir::Value sliceRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value source, int64_t offset,
                      int64_t count);

// Returns `whole` with `part` inserted at the indices `offsets`.
mlir::Value insert(mlir::OpBuilder &b, mlir::Location loc, mlir::Value part, mlir::Value whole,
                   llvm::ArrayRef<int64_t> offsets);

// Returns `whole` with its rows (elements of a vector) from `offset` on replaced by `part`.
mlir::Value insertRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value part, mlir::Value whole,
                       int64_t offset);

// Returns the parameter that `load` reads. If `load` reads a state or copy, returns its parameter.
lm::VariableOp parameterOf(lm::LoadOp load, const mlir::SymbolTable &symbols);

// Adds zeros to `parameter` and its states until dimension `dim` has `size` elements. The part
// without these zeros keeps the parameter's name. Fails if `parameter` already has named parts. The
// caller must change the types of the ops that load these variables.
mlir::LogicalResult padParameter(lm::VariableOp parameter, unsigned dim, int64_t size);

} // namespace lmc
