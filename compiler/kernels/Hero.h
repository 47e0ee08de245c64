// Which regions the CPU and CUDA code generators can turn into one kernel, and how such a kernel
// iterates.
//
// A region computes tensors over a *domain* of static loop extents (d0 .. dn-1). Elements along the
// innermost dimension (the lane, in the code) are adjacent in memory, and vectors run along it. The
// hero, the kind of the region's main op, determines the rest:
//
//   elementwise       Each result, or each part that a result is assembled from, covers the
//                     domain. An item is an index of the outer dimensions, or one element
//                     when every access is an identity (the domain is then flat).
//   gather            As elementwise, and bodies may load rows at indices read from memory.
//   row_reduction     The innermost dimension is reduced; an item is a row. A reduction that
//                     depends on another one needs a later pass over the row. Every pass recomputes
//                     its values from the inputs. A result may also hold the sums of each
//                     R rows, column by column: [rows / R, columns]. An item is then R rows,
//                     added one after the other.
//   column_reduction  The domain is (r, c), r is reduced; an item is a column.
//
// Every intermediate value is recomputed where it is used, so a kernel needs no memory except its
// arguments.
#pragma once

#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"

#include <string>

namespace lmc::codegen {

// How a kernel is launched, and the cost of one work item.
struct KernelShape {
  llvm::SmallVector<int64_t> domain; // loop extents, outer to inner
  int64_t items = 1;                 // work items of a launch
  int64_t chunk = 1;                 // items that one call should compute
  int64_t inner = 1;                 // elements that one item loops over
  unsigned passes = 1;               // the number of loops over `inner` per item
  int64_t rowsPerItem = 1;           // more than 1 where a result sums blocks of rows
  bool flat = false;                 // items are single elements of the domain
  // Memory traffic and floating-point operations of one item, rounded up. Every input element that
  // is read counts once, every result element once; a function such as exp counts as one operation.
  uint64_t bytesPerItem = 0;
  uint64_t flopsPerItem = 0;
  // Bytes and operations of a whole launch, exact.
  uint64_t readBytes = 0, writtenBytes = 0, flops = 0;
};

// Returns the shape of `body` under `hero`. Fails, with the reason, when no kernel with this hero
// can compute the body.
mlir::FailureOr<KernelShape> analyze(kern::Hero hero, mlir::Block &body, std::string *reason);

// Returns the shape of a kernel, whose arguments may be matrices with a pitch between rows.
mlir::FailureOr<KernelShape> analyze(kern::KernelOp kernel, std::string *reason);

bool canEmit(kern::Hero hero, mlir::Block &body, std::string *reason);

// Returns true if result number `result` may be written over input number `input`. The two must
// have the same layout. Each element of the input may be read only to compute the same element of
// the result, before that is written: no later pass and no other item may read it.
bool mayShareBuffer(mlir::Block &body, kern::Hero hero, unsigned result, unsigned input);

// The rest of this file is the analysis that the code generators print kernels from.

// A reduction. A `point`, here and below, is a map from the domain to the indices of a tensor or to
// the loops of a linalg.generic.
struct Reduction {
  mlir::Value result;    // the linalg.generic's result
  mlir::AffineMap point; // domain -> its indices
  mlir::Value init;      // the tensor of start values, read at `point`
  mlir::Value term;      // in the body: the value combined at every domain point
  mlir::Operation *combiner;
  unsigned pass; // the reduction is complete from level pass + 1 on
};

// A result, or a value that depends on the outer dimensions only and is computed as soon as its
// level (the number of passes completed) is reached.
struct Computed {
  mlir::Value value;
  mlir::AffineMap point;
  unsigned level;
};

// A result that sums blocks of rows: a linalg.generic over (block, row of the block, column) that
// reduces the second loop.
struct BlockSum {
  Reduction sum;         // `init` is a scalar; `pass` is the pass of the term
  mlir::AffineMap loops; // domain -> (block, row of the block, column) of `term`
  unsigned output;       // index in kern.yield
};

// A value stored for a result: the whole result, or one of the parts that tensor.insert_slice
// assembles it from.
struct Output : Computed {
  unsigned result;       // index in kern.yield
  mlir::AffineMap place; // domain -> indices of the result
};

struct Access {
  unsigned input;
  mlir::AffineMap point;           // domain -> indices of the input; 0 for dynamic ones
  llvm::SmallVector<bool> dynamic; // per index: it is computed from memory
  unsigned lastLevel = 0;          // the last pass that may read
};

struct RegionInfo {
  KernelShape shape;
  kern::Hero hero;
  mlir::AffineMap identity; // of the domain
  mlir::AffineMap reduced;  // the domain without the reduced dimension
  llvm::SmallVector<Reduction> reductions;
  llvm::SmallVector<BlockSum> blockSums;
  llvm::SmallVector<Computed> outerValues;
  llvm::SmallVector<Output> outputs; // in the order of kern.yield, parts in order of insertion
  llvm::SmallVector<Access> accesses;
  // Per input and result: the number of rows, and the elements from one row to the next (pitch; 0
  // means dense).
  llvm::SmallVector<int64_t> argRows, argPitches;

  // Returns the number of elements between index i and index i + 1 of dimension `dim` of an
  // argument.
  int64_t strideOf(unsigned argument, mlir::RankedTensorType type, unsigned dim) const;

  // A result that covers the domain is written in pass `level`, any other result after that pass. A
  // sum of blocks of rows accumulates in pass `level` of every row.
  bool coversDomain(const Computed &output) const {
    return output.point == identity && !isBlockSum(output);
  }
  bool isBlockSum(const Computed &output) const {
    return llvm::any_of(blockSums, [&](const BlockSum &b) { return b.sum.result == output.value; });
  }
};

// Returns the index of `extract`'s dimension `dim` as a function of the domain if it is a plain
// loop index that stays inside the tensor; returns null if it must be computed and clamped.
mlir::AffineExpr staticIndex(mlir::tensor::ExtractOp extract, unsigned dim, mlir::AffineMap point,
                             llvm::ArrayRef<int64_t> domain);

// Returns where `operand` of `generic` is read when the generic is evaluated at `point`.
mlir::AffineMap readPoint(mlir::linalg::GenericOp generic, mlir::OpOperand *operand,
                          mlir::AffineMap point);

mlir::FailureOr<RegionInfo> analyzeRegion(kern::Hero hero, mlir::Block &body, std::string *reason);
mlir::FailureOr<RegionInfo> analyzeKernel(kern::KernelOp kernel, std::string *reason);

} // namespace lmc::codegen
