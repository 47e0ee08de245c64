// The lm dialect; its reference is docs/dialects/lm.md, generated from LmOps.td.
#pragma once

#include "dialects/interfaces/Differentiable.h"
#include "dialects/interfaces/Generated.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"

#include "dialects/lm/LmDialect.h.inc"
#include "dialects/lm/Optimizer.h"

#define GET_ATTRDEF_CLASSES
#include "dialects/lm/LmAttributes.h.inc"

namespace lmc::lm {

template <typename Op>
class FreeToRecompute : public mlir::OpTrait::TraitBase<Op, FreeToRecompute> {};
template <typename Op>
class MlpActivation : public mlir::OpTrait::TraitBase<Op, MlpActivation> {};
template <typename Op>
class BecomesCall : public mlir::OpTrait::TraitBase<Op, BecomesCall> {};

// The attribute of a func.call that calls a transformer layer: i64, the layer's index from 0.
inline constexpr char kLayer[] = "lm.layer";

// Creates a call of `callee` with the layer index and the location of `call`.
mlir::func::CallOp createCallLike(mlir::OpBuilder &b, mlir::func::CallOp call,
                                  mlir::func::FuncOp callee, mlir::ValueRange operands);

// Creates a copy of the symbol `op`, right after it, and gives the copy the name `name`.
template <typename Op>
Op cloneAs(mlir::OpBuilder &b, Op op, const llvm::Twine &name, mlir::SymbolTable &symbols) {
  mlir::OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(op);
  auto copy = mlir::cast<Op>(b.clone(*op));
  copy.setSymName(name.str());
  symbols.insert(copy);
  return copy;
}

// A tensor of 8-bit floats, with its scale: an f32 scalar, or a matrix of scales for blocks.
struct Quantized {
  mlir::Value codes, scale;
};
// Creates the ops that cast `x` (f32 or bf16) to `dtype`, with the scale that `x` itself needs.
Quantized quantize(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type dtype);

// Returns true for the ops between a weight and its codes: casts, and what makes their scales.
bool castsToEightBits(mlir::Operation *op);

// The number of elements that share a scale in a row or column of codes with scales for blocks.
inline constexpr int64_t kScaleBlock = 128;
// Create the ops of the same names, with these formats.
Quantized quantizeRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type dtype);
Quantized quantizeColumns(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type dtype);
// Returns the shape of the scales that lm.quantize_tiles makes for a matrix of this type: a scale
// for each tile. With `padded`, as lm.scaled_matmul needs them, rows of scales are multiples of 4
// long.
llvm::SmallVector<int64_t> scalesOfTiles(mlir::RankedTensorType x, bool padded = true);
Quantized quantizeTiles(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type dtype,
                        bool padded = true);

} // namespace lmc::lm

#define GET_OP_CLASSES
#include "dialects/lm/LmOps.h.inc"
