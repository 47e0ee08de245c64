// Decides which regions the CPU and CUDA code generators can turn into one kernel, and how such a
// kernel iterates.
//
// A region computes tensors over a *domain* of static loop extents (d0 .. dn-1). Elements along the
// innermost dimension are adjacent in memory, and vectors run along this dimension. The hero is the
// loop structure of the kernel:
//
//   elementwise       Each result, or each part that a result is assembled from, covers the
//                     domain. A work item is an index of the outer dimensions. If every access is
//                     an identity map, a work item is one element (the domain is then flat).
//   gather            As elementwise, and the region may load rows at indices read from memory.
//   row_reduction     The innermost dimension is reduced, or the last k dimensions together: such
//                     as (heads, head_dim) for a norm over whole rows. A work item is a row: all
//                     points of the reduced dimensions. A reduction that depends on another one
//                     needs a later pass over the row. Every pass recomputes its values from the
//                     inputs. With k = 1, a result may also be a sum over blocks of rows, with
//                     one value per block and column. A work item is then all rows of a block,
//                     which are added one after the other.
//   column_reduction  The domain is (r, c) and r is reduced; a work item is a column.
//
// Every intermediate value is recomputed where it is used, so a kernel needs no memory other than
// its arguments.
#pragma once

#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"

#include "llvm/Support/Error.h"

namespace lmc::codegen {

// The launch of a kernel, and the cost of one work item.
struct KernelShape {
  llvm::SmallVector<int64_t> domain; // loop extents, outermost first
  int64_t items = 1;                 // number of work items of a launch
  int64_t chunk = 1;                 // number of work items that one call should compute
  int64_t inner = 1;                 // number of elements that one work item loops over
  unsigned reducedDims = 1;          // number of innermost dimensions that form a row
  unsigned passes = 1;               // number of passes over `inner` per work item
  int64_t rowsPerItem = 1;           // more than 1 if a result sums over blocks of rows
  bool flat = false;                 // true if each work item is a single element of the domain
  // Memory traffic and floating-point operations of one work item, rounded up. Every input element
  // that is read and every result element counts once; a function such as exp is one operation.
  uint64_t bytesPerItem = 0;
  uint64_t flopsPerItem = 0;
  // Bytes and floating-point operations of a whole launch, exact.
  uint64_t readBytes = 0, writtenBytes = 0, flops = 0;
};

// Returns the shape of `body` under `hero`, or an error that says why no kernel with this hero can
// compute the body.
llvm::Expected<KernelShape> analyze(kern::Hero hero, mlir::Block &body);

// Returns the shape of a kernel, whose arguments may be matrices with a pitch between rows.
llvm::Expected<KernelShape> analyze(kern::KernelOp kernel);

// Returns true if a kernel with this hero can compute the body.
bool canEmit(kern::Hero hero, mlir::Block &body);

// The rest of this file is the analysis from which the code generators print kernels.

// A reduction. Here and below, a `point` is an affine map from the domain to the indices of a
// tensor or to the loops of a linalg.generic.
struct Reduction {
  mlir::Value result;    // a result of the linalg.generic that reduces
  mlir::AffineMap point; // domain -> indices of `result`
  mlir::Value init;      // the tensor of start values, read at `point`
  mlir::Value term;      // the value in the body that is combined (such as added) at each point
  mlir::Operation *combiner;
  unsigned pass; // the result is complete after pass number `pass`
};

// Returns the neutral value of the reduction's combiner: 0 for a sum, 1 for a product, -infinity
// for a maximum.
mlir::TypedAttr identityOf(const Reduction &reduction);

// A result, or a value that depends only on the outer dimensions. It is computed after `pass`
// passes over the row.
struct Computed {
  mlir::Value value;
  mlir::AffineMap point;
  unsigned pass;
};

// A result that sums over blocks of rows. A linalg.generic computes it, whose loops are those of
// the domain, except that one outer dimension is split in two loops: (block, index within the
// block). It reduces the index within the block and the outer dimensions after it, so that a block
// is consecutive rows. For the domain (rows, columns) the loops are (block, row of the block,
// column).
struct BlockSum {
  Reduction sum;         // the reduction: its `init` is a scalar, and its `pass` computes the term
  mlir::AffineMap loops; // domain -> loops of `term`
  unsigned output;       // operand number in kern.yield
};

// A value stored for a result: the whole result, or one of the parts that tensor.insert_slice
// assembles it from.
struct Output : Computed {
  unsigned result;       // operand number in kern.yield
  mlir::AffineMap place; // domain -> indices of the result
};

struct Access {
  unsigned input;
  mlir::AffineMap point;           // domain -> indices of the input; 0 for dynamic indices
  llvm::SmallVector<bool> dynamic; // per index: true if it is computed from values in memory
  unsigned lastPass = 0;           // number of the last pass that may read
};

struct RegionInfo {
  KernelShape shape;
  kern::Hero hero;
  mlir::AffineMap identity; // the identity map of the domain
  mlir::AffineMap reduced;  // the map that drops the reduced dimensions
  llvm::SmallVector<Reduction> reductions;
  llvm::SmallVector<BlockSum> blockSums;
  llvm::SmallVector<Computed> outerValues;
  // The outputs in the order of kern.yield; the parts of a result in order of insertion.
  llvm::SmallVector<Output> outputs;
  llvm::SmallVector<Access> accesses;
  // Per argument (inputs, then results): the number of rows, and the pitch, the number of elements
  // from the start of one row to the start of the next (0: rows are adjacent).
  llvm::SmallVector<int64_t> argRows, argPitches;

  // Returns the number of elements between index i and index i + 1 of dimension `dim` of an
  // argument of type `type`.
  int64_t strideOf(unsigned argument, mlir::RankedTensorType type, unsigned dim) const;

  // Returns the number of outer dimensions, whose indices select a row.
  unsigned outerDims() const {
    unsigned rank = unsigned(shape.domain.size());
    return rank - std::min(rank, shape.reducedDims);
  }
  // Returns true if the map varies between rows.
  bool isOuter(mlir::AffineMap map) const {
    return llvm::any_of(llvm::seq(outerDims()), [&](unsigned d) { return map.isFunctionOfDim(d); });
  }
  // Returns true if the result covers the domain: it is then written during pass number `pass`. Any
  // other result is written outside the passes, once its value is known. A sum over blocks of rows
  // is updated during pass `pass` of every row.
  bool coversDomain(const Computed &output) const {
    return output.point == identity && !isBlockSum(output);
  }
  bool isBlockSum(const Computed &output) const {
    return llvm::any_of(blockSums, [&](const BlockSum &b) { return b.sum.result == output.value; });
  }
};

// Returns the index in dimension `dim` that `extract` reads, as a function of the domain, if the
// index is a plain loop index that stays inside the tensor. Returns null if it must be computed and
// clamped.
mlir::AffineExpr staticIndex(mlir::tensor::ExtractOp extract, unsigned dim, mlir::AffineMap point,
                             llvm::ArrayRef<int64_t> domain);

// Returns the map from the domain to the indices at which `operand` is read when `generic` is
// evaluated at `point`.
mlir::AffineMap readPoint(mlir::linalg::GenericOp generic, mlir::OpOperand *operand,
                          mlir::AffineMap point);

llvm::Expected<RegionInfo> analyzeRegion(kern::Hero hero, mlir::Block &body);
llvm::Expected<RegionInfo> analyzeKernel(kern::KernelOp kernel);

// Returns true if result number `result` of `body` may be written over input number `input`. Both
// must have the same layout. Each element of the input may be read only to compute the same element
// of the result, and before that element is written: no later pass and no other work item may read
// it.
bool mayShareBuffer(const RegionInfo &info, mlir::Block &body, unsigned result, unsigned input);

} // namespace lmc::codegen
