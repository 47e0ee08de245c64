// Which regions the CPU and CUDA code generators can turn into one kernel, and
// how such a kernel iterates.
//
// A region computes tensors over a *domain* of static loop extents (d0 .. dn-1).
// The innermost dimension is the *lane*: it is walked with unit stride and is
// what vectors run along. The hero fixes the rest:
//
//   elementwise       results, or the parts that they are put together of, cover the
//                     domain; an item is an index of the outer dimensions, or one
//                     element when every access is an identity (the domain is then
//                     flat).
//   gather            the same, and bodies may load rows at indices from memory.
//   row_reduction     the lane is reduced; an item is a row. A reduction that
//                     depends on another needs a later pass over the row. Values
//                     are recomputed from the inputs in every pass. A result may also
//                     be the sums of each R rows, column by column, [rows / R, columns];
//                     an item is then those R rows, added one after the other.
//   column_reduction  domain (r, c), r is reduced; an item is a column.
//
// Everything between inputs and results is recomputed where it is used, so a
// kernel needs no memory but its arguments.
#pragma once

#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"

#include <string>

namespace lmc::codegen {

// How a kernel is launched and what one work item costs.
struct KernelShape {
  llvm::SmallVector<int64_t> domain; // loop extents, outer to inner
  int64_t items = 1;                 // work items of a launch
  int64_t chunk = 1;                 // items that one call should take
  int64_t inner = 1;                 // extent that one item walks
  unsigned passes = 1;               // times an item walks it
  int64_t rowsPerItem = 1;           // more than 1 where a result sums blocks of rows
  bool flat = false;                 // items are single elements of the domain
  // Memory traffic and floating-point operations of an item, rounded up: every
  // input element that is read counts once, every result element once; a
  // function such as exp counts as one operation.
  uint64_t bytesPerItem = 0;
  uint64_t flopsPerItem = 0;
  // The same of a whole launch, exact.
  uint64_t readBytes = 0, writtenBytes = 0, flops = 0;
};

// The shape of `body` under `hero`, or failure with why that hero cannot emit it.
mlir::FailureOr<KernelShape> analyze(kern::Hero hero, mlir::Block &body, std::string *reason);

// The same of a kernel, whose arguments may lie in spaced runs.
mlir::FailureOr<KernelShape> analyze(kern::KernelOp kernel, std::string *reason);

bool canEmit(kern::Hero hero, mlir::Block &body, std::string *reason);

// Whether result number `result` may be written over input number `input`: they
// have the same layout, and each element of the input is only read for the same
// element of the result, before that is written, and by no later pass or other item.
bool mayShareBuffer(mlir::Block &body, kern::Hero hero, unsigned result, unsigned input);

// What follows is the analysis that the code generators emit from.

// A point maps the domain to the indices of a tensor, or to the loops of a
// linalg.generic.
struct Reduction {
  mlir::Value result;    // the linalg.generic's result
  mlir::AffineMap point; // domain -> its indices
  mlir::Value init;      // the tensor it starts from, read at `point`
  mlir::Value term;      // in the body: what is combined, at every domain point
  mlir::Operation *combiner;
  unsigned pass; // available from level pass + 1 on
};

// A result, or a value that only depends on the outer dimensions and is computed
// as soon as its level is reached.
struct Computed {
  mlir::Value value;
  mlir::AffineMap point;
  unsigned level;
};

// A result that sums blocks of rows: a linalg.generic over (block, row of the block, column)
// that reduces the second loop.
struct BlockSum {
  Reduction sum;         // `init` is a scalar; `pass` is the term's
  mlir::AffineMap loops; // domain -> (block, row of the block, column), where `term` is evaluated
  unsigned output;       // in the order of kern.yield
};

// What is stored for a result: all of it, or, where the result is made of parts that
// tensor.insert_slice puts together, a part.
struct Output : Computed {
  unsigned result;       // in the order of kern.yield
  mlir::AffineMap place; // domain -> indices of the result
};

struct Access {
  unsigned input;
  mlir::AffineMap point;           // domain -> indices of the input; 0 where dynamic
  llvm::SmallVector<bool> dynamic; // per index: it is computed from memory
  unsigned lastLevel = 0;          // the last pass that may execute it
};

struct RegionInfo {
  KernelShape shape;
  kern::Hero hero;
  mlir::AffineMap identity; // of the domain
  mlir::AffineMap reduced;  // the domain without the reduced dimension
  llvm::SmallVector<Reduction> reductions;
  llvm::SmallVector<BlockSum> blockSums;
  llvm::SmallVector<Computed> outerValues;
  llvm::SmallVector<Output> outputs; // in the order of kern.yield and of insertion
  llvm::SmallVector<Access> accesses;
  // Per input and result: elements from one row to the next and how many rows there are;
  // pitch 0: dense.
  llvm::SmallVector<int64_t> argRows, argPitches;

  // Elements from index i of dimension `dim` of an argument to index i + 1.
  int64_t strideOf(unsigned argument, mlir::RankedTensorType type, unsigned dim) const;

  // Results that cover the domain are written in pass `level`, others after it; sums of
  // blocks of rows grow in pass `level` of every row.
  bool coversDomain(const Computed &output) const {
    return output.point == identity && !isBlockSum(output);
  }
  bool isBlockSum(const Computed &output) const {
    return llvm::any_of(blockSums, [&](const BlockSum &b) { return b.sum.result == output.value; });
  }
};

// The index of `extract`'s dimension `dim` as a function of the domain, when it is
// plainly a loop index that stays inside the tensor; null when it must be computed
// and clamped.
mlir::AffineExpr staticIndex(mlir::tensor::ExtractOp extract, unsigned dim, mlir::AffineMap point,
                             llvm::ArrayRef<int64_t> domain);

// Where `operand` of `generic` is read when the generic is evaluated at `point`.
mlir::AffineMap readPoint(mlir::linalg::GenericOp generic, mlir::OpOperand *operand,
                          mlir::AffineMap point);

mlir::FailureOr<RegionInfo> analyzeRegion(kern::Hero hero, mlir::Block &body, std::string *reason);
mlir::FailureOr<RegionInfo> analyzeKernel(kern::KernelOp kernel, std::string *reason);

} // namespace lmc::codegen
