// Decides which regions the CPU and CUDA code generators can turn into one kernel, and how such a
// kernel iterates.
//
// A region computes tensors over a *domain* of static loop extents (d0 .. dn-1). Vectors run along
// the innermost dimension, which is contiguous in memory. The hero is the kind of loops that the
// kernel has:
//
//   elementwise       Each result, or part of a result, has one element per point of the domain.
//                     A work item is an index of the outer dimensions. If all accesses are identity
//                     maps (a flat domain), a work item is one element.
//   gather            It is like elementwise, but may load rows at indices read from memory.
//   row_reduction     The last k dimensions form a row and are reduced together. A reduction that
//                     reads the result of an earlier reduction needs a later pass over the row. If
//                     k = 1, a result may also be a sum over blocks of consecutive rows. It has one
//                     value per block and column. A work item is one row; if there is such a sum, a
//                     work item is a block, whose rows are added in order.
//   column_reduction  The domain is (r, c) and r is reduced. A work item is a column.
//
// A kernel recomputes an intermediate value wherever it is used, and needs no memory for it.
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
  // Traffic and floating-point operations of one work item, rounded up. Each element that is read
  // or written counts once; a function such as exp is one operation.
  uint64_t bytesPerItem = 0;
  uint64_t flopsPerItem = 0;
  // Traffic and floating-point operations of a whole launch.
  uint64_t readBytes = 0, writtenBytes = 0, flops = 0;
};

// Returns the launch and cost of a kernel that computes `body`, or an error if `hero` cannot do so.
llvm::Expected<KernelShape> analyze(kern::Hero hero, mlir::Block &body);

// Returns the shape of a kernel. Its arguments may be matrices with padding between the rows.
llvm::Expected<KernelShape> analyze(kern::KernelOp kernel);

// Returns true if a kernel with this hero can compute the body.
bool canEmit(kern::Hero hero, mlir::Block &body);

// Only the code generators use the rest of this file.

// Here and below, a `point` maps the domain to a tensor's indices or a linalg.generic's loops.
struct Reduction {
  mlir::Value result;    // a result of the linalg.generic that reduces
  mlir::AffineMap point; // domain -> indices of `result`
  mlir::Value init;      // the tensor of start values, read at `point`
  mlir::Value term;      // the value in the body that is combined (such as added) at each point
  mlir::Operation *combiner;
  unsigned pass; // the result is complete after pass number `pass`
};

// Returns the neutral value of the reduction's combiner: 0 for a sum, 1 for a product.
mlir::TypedAttr identityOf(const Reduction &reduction);

// A result, or a value that depends only on the outer dimensions. It is known after `pass` passes.
struct Computed {
  mlir::Value value;
  mlir::AffineMap point;
  unsigned pass;
};

// A result that sums over blocks of consecutive rows. Its linalg.generic has one loop more than the
// domain. If the domain is (row, column), the loops are (block, row of the block, column), and the
// second loop is reduced.
struct BlockSum {
  Reduction sum;         // its `init` is a scalar; pass number `pass` computes the term
  mlir::AffineMap loops; // domain -> loops of `term`
  unsigned output;       // operand number in kern.yield
};

// A whole result, or one of the parts that tensor.insert_slice assembles a result from.
struct Output : Computed {
  unsigned result;       // operand number in kern.yield
  mlir::AffineMap place; // domain -> indices of the result
};

struct Access {
  unsigned input;
  mlir::AffineMap point;           // domain -> indices of the input; 0 for dynamic indices
  llvm::SmallVector<bool> dynamic; // per index: true if it is computed from values in memory
  unsigned lastPass = 0;           // number of the last pass that may read the element
};

struct RegionInfo {
  KernelShape shape;
  kern::Hero hero;
  mlir::AffineMap identity; // the identity map of the domain
  mlir::AffineMap reduced;  // the map that drops the reduced dimensions
  llvm::SmallVector<Reduction> reductions;
  llvm::SmallVector<BlockSum> blockSums;
  llvm::SmallVector<Computed> outerValues;
  // Outputs are in the order of kern.yield's operands; parts of a result are in insertion order.
  llvm::SmallVector<Output> outputs;
  llvm::SmallVector<Access> accesses;
  // For each input, then each result: its number of rows; its pitch in elements (0: no padding).
  llvm::SmallVector<int64_t> argRows, argPitches;

  // Returns the distance in elements between indices i and i + 1 of an argument's dimension `dim`.
  int64_t strideOf(unsigned argument, mlir::RankedTensorType type, unsigned dim) const;

  // Returns the number of outer dimensions. Their indices select a row.
  unsigned outerDims() const {
    unsigned rank = unsigned(shape.domain.size());
    return rank - std::min(rank, shape.reducedDims);
  }
  // Returns true if the map depends on an outer dimension.
  bool isOuter(mlir::AffineMap map) const {
    return llvm::any_of(llvm::seq(outerDims()), [&](unsigned d) { return map.isFunctionOfDim(d); });
  }
  // Returns true if each point of the domain has its own element of the result. Such a result is
  // written by pass number `pass`. A sum over blocks of rows is updated in pass number `pass`
  // over each row. Every other result is written as soon as its value is known.
  bool coversDomain(const Computed &output) const {
    return output.point == identity && !isBlockSum(output);
  }
  bool isBlockSum(const Computed &output) const {
    return llvm::any_of(blockSums, [&](const BlockSum &b) { return b.sum.result == output.value; });
  }
};

// If the index that `extract` uses for `dim` is a loop index and within the tensor, returns it as a
// function of the domain. Otherwise returns null: the kernel must compute and clamp the index.
mlir::AffineExpr staticIndex(mlir::tensor::ExtractOp extract, unsigned dim, mlir::AffineMap point,
                             llvm::ArrayRef<int64_t> domain);

// Returns the map from the domain to the indices of `operand` that `generic` reads at `point`.
mlir::AffineMap readPoint(mlir::linalg::GenericOp generic, mlir::OpOperand *operand,
                          mlir::AffineMap point);

llvm::Expected<RegionInfo> analyzeRegion(kern::Hero hero, mlir::Block &body);
llvm::Expected<RegionInfo> analyzeKernel(kern::KernelOp kernel);

// Returns true if result number `result` of `body` may overwrite input number `input`, which has
// the same layout. The kernel must not read an element of the input after it has written this
// element of the result.
bool mayShareBuffer(const RegionInfo &info, mlir::Block &body, unsigned result, unsigned input);

} // namespace lmc::codegen
