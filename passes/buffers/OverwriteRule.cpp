#include "passes/buffers/OverwriteRule.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace lmc;

namespace {

// A read of the input by the kernel. `point` maps the kernel's loops to the indices that are read.
struct Read {
  AffineMap point;
  SmallVector<bool> computed; // per index: true if the kernel computes it; `point` then has 0
  bool onLane = false;        // true if a computed index varies along the innermost loop
  unsigned pass = 0;          // number of the last pass over the row that may read the element
};

bool reduces(linalg::GenericOp op) { return op && op.getNumReductionLoops() > 0; }

// Returns true if `op` adds the rows of each block. Its loops are (block, row in block, further...,
// column), and it also adds up the further loops, such as the heads of a row.
bool sumsBlocks(linalg::GenericOp op) {
  const SmallVector<utils::IteratorType> loops = op.getIteratorTypesArray();
  return reduces(op) && loops.size() >= 3 && op.getNumReductionLoops() == loops.size() - 2 &&
         loops.front() == utils::IteratorType::parallel &&
         loops.back() == utils::IteratorType::parallel;
}

class ReadsOfInput {
public:
  ReadsOfInput(kern::KernelOp kernel, unsigned input)
      : kernel(kernel), body(kernel.getBody().front()), input(body.getArgument(input)) {
    findLoops();
    collectAll();
  }

  bool allBefore(unsigned result) {
    SmallVector<kern::ResultPart> parts =
        kern::partsOfResult(body.getTerminator()->getOperand(result));
    // Each loop iteration does all its reads, then writes one element of each part of the result.
    SmallVector<AffineMap> written;
    for (const kern::ResultPart &part : parts) {
      AffineMap point = pointOf(part.value);
      if (!point)
        return false;
      written.push_back(part.place.compose(point));
    }
    return llvm::all_of(reads, [&](const Read &read) {
      return llvm::all_of(
                 parts,
                 [&](const kern::ResultPart &part) { return read.pass <= passOf(part.value); }) &&
             llvm::any_of(written, [&](AffineMap place) { return isBefore(read, place); });
    });
  }

private:
  void findLoops() {
    for (auto generic : body.getOps<linalg::GenericOp>())
      if (reduces(generic)) {
        loops = generic.getNumLoops() - (sumsBlocks(generic) ? 1 : 0);
        return;
      }
    for (Value value : body.getTerminator()->getOperands())
      for (const kern::ResultPart &part : kern::partsOfResult(value))
        loops = std::max(loops, unsigned(cast<RankedTensorType>(part.value.getType()).getRank()));
  }

  void collectAll() {
    for (auto generic : body.getOps<linalg::GenericOp>()) {
      if (!reduces(generic))
        continue;
      unsigned pass = passOfReduction(generic);
      for (Value yielded : generic.getBody()->getTerminator()->getOperands())
        collectScalar(yielded, loopsOf(generic), pass);
      // A reduction reads its initial value after its pass over the row or column. The initial
      // value of a sum over a block of rows is a constant, so no input is read for it.
      if (sumsBlocks(generic))
        continue;
      for (OpOperand &init : generic.getDpsInitsMutable())
        collect(init.get(), generic.getMatchingIndexingMap(&init), pass + 1);
    }
    for (Value value : body.getTerminator()->getOperands())
      for (const kern::ResultPart &part : kern::partsOfResult(value))
        if (AffineMap point = pointOf(part.value))
          collect(part.value, point, passOf(part.value));
  }

  void collect(Value tensor, AffineMap point, unsigned pass) {
    if (!seen.insert({tensor, point, pass}).second)
      return;
    if (tensor == input) {
      reads.push_back({point, SmallVector<bool>(point.getNumResults(), false), false, pass});
      return;
    }
    // collectAll() has already collected the reads of every reduction.
    auto generic = tensor.getDefiningOp<linalg::GenericOp>();
    if (!generic || reduces(generic))
      return;
    unsigned number = cast<OpResult>(tensor).getResultNumber();
    collectScalar(generic.getBody()->getTerminator()->getOperand(number), point, pass);
  }

  void collectScalar(Value scalar, AffineMap point, unsigned pass) {
    if (!seen.insert({scalar, point, pass}).second)
      return;
    if (auto argument = dyn_cast<BlockArgument>(scalar)) {
      auto generic = cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
      OpOperand *operand = generic.getMatchingOpOperand(argument);
      if (!reduces(generic) || !generic.isDpsInit(operand))
        collect(operand->get(),
                simplifyAffineMap(generic.getMatchingIndexingMap(operand).compose(point)), pass);
      return;
    }
    Operation *op = scalar.getDefiningOp();
    for (Value operand : op->getOperands())
      if (!isa<TensorType>(operand.getType()))
        collectScalar(operand, point, pass);
    if (auto extract = dyn_cast<tensor::ExtractOp>(op))
      collectExtract(extract, point, pass);
  }

  void collectExtract(tensor::ExtractOp extract, AffineMap point, unsigned pass) {
    if (extract.getTensor() != input)
      return;
    Read read;
    read.pass = pass;
    SmallVector<AffineExpr> indices;
    for (Value index : extract.getIndices()) {
      auto loop = index.getDefiningOp<linalg::IndexOp>();
      read.computed.push_back(!loop);
      read.onLane |= !loop && variesOnLane(index, point);
      indices.push_back(loop ? point.getResult(unsigned(loop.getDim()))
                             : getAffineConstantExpr(0, context()));
    }
    read.point = AffineMap::get(loops, 0, indices, context());
    reads.push_back(read);
  }

  bool variesOnLane(Value scalar, AffineMap point) {
    if (loops == 0)
      return false;
    if (auto argument = dyn_cast<BlockArgument>(scalar)) {
      auto generic = cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
      OpOperand *operand = generic.getMatchingOpOperand(argument);
      return generic.getMatchingIndexingMap(operand).compose(point).isFunctionOfDim(loops - 1);
    }
    if (auto loop = scalar.getDefiningOp<linalg::IndexOp>())
      return point.getResult(unsigned(loop.getDim())).isFunctionOfDim(loops - 1);
    return llvm::any_of(scalar.getDefiningOp()->getOperands(), [&](Value operand) {
      return !isa<TensorType>(operand.getType()) && variesOnLane(operand, point);
    });
  }

  // Returns the number of the first pass over the row that can use `tensor` (0 for an input).
  unsigned passOf(Value tensor) {
    auto generic = tensor.getDefiningOp<linalg::GenericOp>();
    if (!generic)
      return 0;
    if (auto it = passes.find(tensor); it != passes.end())
      return it->second;
    unsigned pass = passOfReduction(generic) + (reduces(generic) ? 1 : 0);
    return passes[tensor] = pass;
  }

  unsigned passOfReduction(linalg::GenericOp reduction) {
    unsigned pass = 0;
    for (Value operand : reduction->getOperands())
      pass = std::max(pass, passOf(operand));
    return pass;
  }

  // Maps the kernel's loops to the loops of `reduction`. A reduction over blocks of n rows has the
  // loops (row / n, row mod n, further..., column).
  AffineMap loopsOf(linalg::GenericOp reduction) const {
    if (!sumsBlocks(reduction))
      return allLoops();
    int64_t rows = reduction.getStaticLoopRanges()[1];
    AffineExpr row = getAffineDimExpr(0, context());
    SmallVector<AffineExpr> indices{row.floorDiv(rows), row % rows};
    for (unsigned loop = 1; loop < loops; ++loop)
      indices.push_back(getAffineDimExpr(loop, context()));
    return AffineMap::get(loops, 0, indices, context());
  }

  // Maps the kernel's loops to the indices at which `result` is written, or returns a null map.
  AffineMap pointOf(Value result) {
    unsigned rank = unsigned(cast<RankedTensorType>(result.getType()).getRank());
    AffineMap all = allLoops();
    if (rank == loops && !isColumn())
      return all;
    if (rank + 1 != loops || !(isColumn() || isRow()))
      return {};
    if (rank == 0)
      return AffineMap::get(loops, 0, {}, context());
    return isColumn() ? all.getMinorSubMap(rank) : all.getMajorSubMap(rank);
  }

  // Returns true if one work item first does `read`, and then writes the element at `written`.
  bool isBefore(const Read &read, AffineMap written) const {
    bool computed = llvm::is_contained(read.computed, true);
    if (!computed && read.point == written)
      return true;
    // A row reduction may read one element of a row for all elements of this row. It reads that
    // one element before it writes to the row.
    if (!isRow() || written != allLoops() || read.onLane || read.point.getNumResults() != loops ||
        read.point.isFunctionOfDim(loops - 1))
      return false;
    for (unsigned loop = 0; loop + 1 < loops; ++loop)
      if (read.computed[loop] || read.point.getResult(loop) != getAffineDimExpr(loop, context()))
        return false;
    return true;
  }

  bool isColumn() const { return hero() == kern::Hero::ColumnReduction; }
  bool isRow() const { return hero() == kern::Hero::RowReduction; }
  AffineMap allLoops() const { return AffineMap::getMultiDimIdentityMap(loops, context()); }
  kern::Hero hero() const { return kern::KernelOp(kernel).getHero(); }
  MLIRContext *context() const { return body.getParentOp()->getContext(); }

  kern::KernelOp kernel;
  Block &body;
  BlockArgument input;
  unsigned loops = 0;
  SmallVector<Read> reads;
  llvm::DenseSet<std::tuple<Value, AffineMap, unsigned>> seen;
  llvm::DenseMap<Value, unsigned> passes;
};

} // namespace

bool lmc::readsBeforeWriting(kern::KernelOp kernel, unsigned input, unsigned result) {
  Block &body = kernel.getBody().front();
  auto read = dyn_cast<RankedTensorType>(body.getArgument(input).getType());
  auto written = dyn_cast<RankedTensorType>(body.getTerminator()->getOperand(result).getType());
  if (!read || !written || read.getShape() != written.getShape() ||
      read.getElementTypeBitWidth() != written.getElementTypeBitWidth())
    return false;
  return ReadsOfInput(kernel, input).allBefore(result);
}
