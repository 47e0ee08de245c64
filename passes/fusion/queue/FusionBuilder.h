// Builds the region of a kern.fusion, one linalg.generic at a time, and then the kern.fusion
// itself.
#pragma once

#include "dialects/kern/Kern.h"
#include "dialects/lm/TensorTypes.h"
#include "passes/fusion/Scalar.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

namespace lmc {

// Returns a vector as a matrix with one row, and a matrix unchanged.
mlir::Value asRows(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value);

// Returns the type in which values of type `storage` are computed: f64 for f64, f32 for other
// floats, and the same type for integers.
mlir::Type arithmeticType(mlir::Type storage);

// Returns how many rows are summed into one row of sums. The result is a divisor of `rows`: the
// largest from 64 down to 16, so that writing the sums costs little compared with reading the rows;
// else the smallest above 64 that leaves at least 64 blocks; else the largest below 16. If each row
// is itself the sum of `further` vectors, the limits are 64 / further and 16 / further.
int64_t rowsPerBlock(int64_t rows, int64_t further = 1);

class FusionBuilder {
public:
  // A formula: a function from scalars to a scalar, all of the arithmetic type.
  using Body = llvm::function_ref<Scalar(Elements)>;

  // A tensor that a linalg.generic reads; `map` maps the loops to the tensor's indices.
  struct Read {
    mlir::Value value;
    mlir::AffineMap map;
  };

  FusionBuilder(mlir::OpBuilder &builder, mlir::Location loc, kern::Hero hero,
                mlir::ValueRange inputs, llvm::StringRef sourceOp);

  mlir::Value arg(unsigned index) { return block->getArgument(index); }

  // Return affine maps from `rank` loops to indices: all() gives all loops, outer() all except the
  // last, inner() only the last, none() none.
  mlir::AffineMap all(unsigned rank);
  mlir::AffineMap outer(unsigned rank);
  mlir::AffineMap inner(unsigned rank);
  mlir::AffineMap none(unsigned rank);

  // Returns the tensor result[loops] = body(reads), with one loop per dimension of `type`.
  mlir::Value map(mlir::RankedTensorType type, llvm::ArrayRef<Read> reads, Body body);

  // Reduces the loops [axis, axis + count) of a nest with the given `extents`: result =
  // combine(result, body(reads)). The result starts from 0 for Add and from minus infinity for Max.
  enum class Combine { Add, Max };
  mlir::Value reduce(llvm::ArrayRef<int64_t> extents, unsigned axis, mlir::Type element,
                     llvm::ArrayRef<Read> reads, Combine combine, Body body, unsigned count = 1);

  // Sums body(reads) over each block of `rowsPerBlock` consecutive rows, in order. The loops with
  // the given `extents` are (row, further..., column). The sums also cover the further loops.
  // Returns [rows / rowsPerBlock, columns].
  mlir::Value sumBlocks(llvm::ArrayRef<int64_t> extents, int64_t rowsPerBlock, mlir::Type element,
                        llvm::ArrayRef<Read> reads, Body body);

  // Stacks the n `parts` along a new dimension `dim`. The result has `type`, [..., n, ...].
  mlir::Value stack(mlir::RankedTensorType type, unsigned dim, mlir::ValueRange parts);

  // Ends the region and creates the kern.fusion where the constructor's builder inserts ops.
  kern::FusionOp finish(mlir::ValueRange results);
  // Ends the region with map(), and returns the kern.fusion's only result.
  mlir::Value finishMap(mlir::RankedTensorType type, llvm::ArrayRef<Read> reads, Body body) {
    return finish(map(type, reads, body)).getResult(0);
  }

private:
  // Creates a linalg.generic whose result has the elements combine(init, body(reads)).
  mlir::Value generic(mlir::RankedTensorType type, mlir::Value init, mlir::AffineMap resultMap,
                      llvm::ArrayRef<mlir::utils::IteratorType> iterators,
                      llvm::ArrayRef<Read> reads, Body body,
                      std::optional<Combine> combine = std::nullopt);
  // Returns a tensor in which each element is `neutral`.
  mlir::Value filled(mlir::RankedTensorType type, double neutral);

  mlir::OpBuilder &outside;
  mlir::OpBuilder b; // its insertion point is inside the region
  mlir::Location loc;
  kern::Hero hero;
  llvm::SmallVector<mlir::Value> inputs;
  llvm::StringRef sourceOp;
  mlir::Region region;
  mlir::Block *block;
};

// The formula body(x) = x. It serves for copies, and for sums of unchanged elements.
inline Scalar identity(Elements s) { return s[0]; }

// Returns the result of a kernel that only reduces body(x) over dimension `axis` of x.
mlir::Value reduceAlone(mlir::OpBuilder &b, mlir::Location loc, kern::Hero hero, mlir::Value x,
                        unsigned axis, mlir::Type element, FusionBuilder::Combine combine,
                        llvm::StringRef sourceOp, FusionBuilder::Body body = identity);

} // namespace lmc
