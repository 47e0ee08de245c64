// Builds a kern.fusion: its region, one linalg.generic at a time.
#pragma once

#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

namespace lmc {

// Returns a floating-point constant of `type`.
mlir::Value constant(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type, double value);

// Returns a view of all elements of `value` in another shape.
mlir::Value reshape(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                    llvm::ArrayRef<int64_t> shape);

// Returns a vector as a matrix of one row, and a matrix unchanged.
mlir::Value asRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value);

// Returns the type to compute in: f64 for f64 storage, f32 for other floats, and integers
// unchanged.
mlir::Type arithmeticType(mlir::Type storage);

// Rounds or widens a float to `type`; returns a value that is no float unchanged.
mlir::Value convertFloat(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                         mlir::Type type);

// Returns the rows per block when a sum over `rows` rows is divided into blocks of rows, with one
// row of sums each. It divides `rows` and is about 64, so that writing the sums costs little
// compared with reading the rows, and there are enough blocks for all processors. If `rows` has no
// such divisor, blocks are larger while there are still 64 of them, else smaller: small blocks
// write more, but run in parallel.
int64_t rowsPerBlock(int64_t rows);

class FusionBuilder {
public:
  // A function from scalars to a scalar, all of the arithmetic type.
  using Body = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;

  // A tensor that a generic reads; `map` goes from the loops to the tensor's indices.
  struct Read {
    mlir::Value value;
    mlir::AffineMap map;
  };

  FusionBuilder(mlir::OpBuilder &builder, mlir::Location loc, kern::Hero hero,
                mlir::ValueRange inputs, llvm::StringRef sourceOp);

  mlir::Value arg(unsigned index) { return block->getArgument(index); }

  // Maps from `rank` loops: to all of them, all but the last, only the last, none.
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

  // Sums body(reads) over each `rowsPerBlock` consecutive rows of the loops `extents` (rows,
  // columns), in order. The result is [rows / rowsPerBlock, columns]. The maps of `reads` are from
  // (row, column).
  mlir::Value sumBlocks(llvm::ArrayRef<int64_t> extents, int64_t rowsPerBlock, mlir::Type element,
                        llvm::ArrayRef<Read> reads, Body body);

  // Returns a tensor of `type` [..., n, ...] that stacks n `parts` along dimension `dim`; the parts
  // lack that dimension.
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
