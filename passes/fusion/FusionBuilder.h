// Building a kern.fusion: its region, one linalg.generic at a time.
#pragma once

#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

namespace lmc {

// A float of `type`.
mlir::Value constant(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type, double value);

// A view of all elements of `value` in another shape.
mlir::Value reshape(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                    llvm::ArrayRef<int64_t> shape);

// A vector as one row; a matrix as it is.
mlir::Value asRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value);

// Arithmetic happens in f32, or f64 for f64 storage; integers stay as they are.
mlir::Type arithmeticType(mlir::Type storage);

// Rounds or widens between float types; leaves values of other types alone.
mlir::Value convertFloat(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                         mlir::Type type);

// The divisor of `rows` by which a sum over rows is cut into blocks, one row of sums for each:
// about 64, so that writing the sums is little beside reading the rows, and there are enough
// blocks to share among processors. A count with no such divisor gets larger blocks while
// there are 64 of them, else smaller ones: those write more, but run side by side.
int64_t rowsPerBlock(int64_t rows);

class FusionBuilder {
public:
  // Scalars in, scalar out, all in the arithmetic type.
  using Body = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;

  // A value read by a generic, through `map` from the loops to its indices.
  struct Read {
    mlir::Value value;
    mlir::AffineMap map;
  };

  FusionBuilder(mlir::OpBuilder &builder, mlir::Location loc, kern::Hero hero,
                mlir::ValueRange inputs, llvm::StringRef sourceOp);

  mlir::Value arg(unsigned index) { return block->getArgument(index); }

  // Maps over `rank` loops: all of them, all but the last, the last only, none.
  mlir::AffineMap all(unsigned rank);
  mlir::AffineMap outer(unsigned rank);
  mlir::AffineMap inner(unsigned rank);
  mlir::AffineMap none(unsigned rank);

  // result[loops] = body(reads), one loop per dimension of `type`.
  mlir::Value map(mlir::RankedTensorType type, llvm::ArrayRef<Read> reads, Body body);

  // Reduces loop `axis` of `extents`: result = combine(result, body(reads)) from `init`.
  enum class Combine { Add, Max };
  mlir::Value reduce(llvm::ArrayRef<int64_t> extents, unsigned axis, mlir::Type element,
                     llvm::ArrayRef<Read> reads, Combine combine, Body body);

  // Sums body(reads) over each `rowsPerBlock` rows of the loops `extents` (rows, columns), in
  // order: [rows / rowsPerBlock, columns]. The maps of `reads` are from (row, column).
  mlir::Value sumBlocks(llvm::ArrayRef<int64_t> extents, int64_t rowsPerBlock, mlir::Type element,
                        llvm::ArrayRef<Read> reads, Body body);

  // The tensor whose index along dimension `dim` chooses the part: type [..., n, ...] from n
  // parts without that dimension.
  mlir::Value stack(mlir::RankedTensorType type, unsigned dim, mlir::ValueRange parts);

  // Ends the region and creates the op at the builder's insertion point.
  kern::FusionOp finish(mlir::ValueRange results);

private:
  mlir::Value generic(mlir::RankedTensorType type, mlir::Value init, mlir::AffineMap resultMap,
                      llvm::ArrayRef<mlir::utils::IteratorType> iterators,
                      llvm::ArrayRef<Read> reads,
                      llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location,
                                                     mlir::ValueRange, mlir::Value)>
                          body);

  mlir::OpBuilder &outside;
  mlir::OpBuilder b; // inside the region
  mlir::Location loc;
  kern::Hero hero;
  llvm::SmallVector<mlir::Value> inputs;
  llvm::StringRef sourceOp;
  mlir::Region region;
  mlir::Block *block;
};

} // namespace lmc
