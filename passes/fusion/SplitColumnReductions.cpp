// kern-split-column-reductions: splits a reduction over many rows into two kernels. The first
// reduces each block of rows to one row, the second reduces these rows. Passes.td shows an example.
#include "passes/fusion/Passes.h"
#include "passes/fusion/queue/FusionBuilder.h"

#include "compiler/kernels/Hero.h"

#include "mlir/IR/IRMapping.h"

namespace lmc {
#define GEN_PASS_DEF_SPLITCOLUMNREDUCTIONSPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// A block has at least this many rows, so writing sums costs little compared with reading rows.
constexpr int64_t kMinRowsPerBlock = 4;

// Returns `op` as a reduction, or null if it is none.
linalg::GenericOp reductionOf(Operation &op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() > 0 ? generic : linalg::GenericOp();
}

// Erases unused ops of the fusion's region, from the last to the first, and then unused inputs.
void eraseUnused(kern::FusionOp fusion) {
  Block &body = fusion.getBody().front();
  for (Operation &op : llvm::make_early_inc_range(llvm::drop_begin(llvm::reverse(body))))
    if (op.use_empty())
      op.erase();
  for (unsigned i = body.getNumArguments(); i-- > 0;)
    if (body.getArgument(i).use_empty()) {
      body.eraseArgument(i);
      fusion->eraseOperand(i);
    }
}

class Splitter {
public:
  Splitter(kern::FusionOp fusion, int64_t rowsPerBlock)
      : fusion(fusion), rowsPerBlock(rowsPerBlock), b(fusion) {}

  // Replaces the fusion by two kernels. Returns false if no code can be generated for one of them.
  bool split() {
    kern::FusionOp blocks = buildBlocks();
    kern::FusionOp rest = buildRest(blocks.getResults());
    bool both = codegen::canEmit(kern::Hero::RowReduction, blocks.getBody().front()) &&
                codegen::canEmit(kern::Hero::ColumnReduction, rest.getBody().front());
    if (both)
      fusion.replaceAllUsesWith(rest);
    else
      rest.erase();
    (both ? fusion : blocks).erase();
    return both;
  }

private:
  // Returns a fusion with an empty region. The region has one argument per value of `inputs`.
  // `mapping` maps the n arguments of the original region to the first n of these arguments.
  kern::FusionOp emptyCopy(kern::Hero hero, ValueRange inputs, TypeRange results,
                           IRMapping &mapping) {
    auto copy = kern::FusionOp::create(b, fusion.getLoc(), results, hero, inputs,
                                       fusion.getSourceOpsAttr());
    setStep(copy, fusion);
    Block &body = copy.getBody().emplaceBlock();
    for (Value input : inputs)
      body.addArgument(input.getType(), input.getLoc());
    Block &original = fusion.getBody().front();
    mapping.map(original.getArguments(),
                body.getArguments().take_front(original.getNumArguments()));
    return copy;
  }

  kern::FusionOp buildBlocks() {
    Block &original = fusion.getBody().front();
    SmallVector<Type> types;
    for (Operation &op : original)
      if (auto reduction = reductionOf(op))
        for (Value sums : reduction.getResults())
          types.push_back(tensorTypeOf(sums).clone(
              {reduction.getStaticLoopRanges()[0] / rowsPerBlock, extent(sums, 0)}));
    IRMapping mapping;
    kern::FusionOp blocks = emptyCopy(kern::Hero::RowReduction, fusion.getInputs(), types, mapping);
    OpBuilder inside = OpBuilder::atBlockEnd(&blocks.getBody().front());
    SmallVector<Value> results;
    for (Operation &op : original.without_terminator()) {
      Operation *copy = inside.clone(op, mapping);
      if (reductionOf(op))
        llvm::append_range(results, sumBlocks(inside, cast<linalg::GenericOp>(copy)));
    }
    kern::YieldOp::create(inside, fusion.getLoc(), results);
    eraseUnused(blocks);
    return blocks;
  }

  kern::FusionOp buildRest(ValueRange blocks) {
    Block &original = fusion.getBody().front();
    SmallVector<Value> inputs(fusion.getInputs());
    llvm::append_range(inputs, blocks);
    IRMapping mapping;
    kern::FusionOp rest =
        emptyCopy(kern::Hero::ColumnReduction, inputs, fusion.getResultTypes(), mapping);
    Block &body = rest.getBody().front();
    OpBuilder inside = OpBuilder::atBlockEnd(&body);
    unsigned next = original.getNumArguments();
    for (Operation &op : original) {
      Operation *copy = inside.clone(op, mapping);
      if (!reductionOf(op))
        continue;
      ValueRange mine = body.getArguments().slice(next, op.getNumResults());
      next += op.getNumResults();
      mapping.map(op.getResults(), sumRest(inside, cast<linalg::GenericOp>(copy), mine));
    }
    eraseUnused(rest);
    return rest;
  }

  // Returns the results of `reduction` for each block of rows, [blocks, columns]. The loops are
  // (block, row in the block, column).
  SmallVector<Value> sumBlocks(OpBuilder &inside, linalg::GenericOp reduction) {
    Location loc = reduction.getLoc();
    AffineExpr block, row, column;
    bindDims(inside.getContext(), block, row, column);
    AffineMap toRows =
        AffineMap::get(3, 0, {block * rowsPerBlock + row, column}, inside.getContext());
    SmallVector<Value> inputs, inits;
    SmallVector<AffineMap> maps;
    for (OpOperand *input : reduction.getDpsInputOperands()) {
      inputs.push_back(input->get());
      maps.push_back(reduction.getMatchingIndexingMap(input).compose(toRows));
    }
    // The loop over the rows of a block takes its extent from this empty tensor.
    inputs.push_back(
        tensor::EmptyOp::create(inside, loc, ArrayRef<int64_t>{rowsPerBlock}, inside.getF32Type()));
    maps.push_back(AffineMap::get(3, 0, row));
    SmallVector<int64_t> rows = reduction.getStaticLoopRanges();
    for (OpOperand &init : reduction.getDpsInitsMutable()) {
      unsigned number = init.getOperandNumber() - reduction.getNumDpsInputs();
      Operation *combiner =
          reduction.getBody()->getTerminator()->getOperand(number).getDefiningOp();
      Value neutral = arith::ConstantOp::create(inside, loc, *arith::getNeutralElement(combiner));
      Value empty = tensor::EmptyOp::create(
          inside, loc, ArrayRef<int64_t>{rows[0] / rowsPerBlock, rows[1]}, neutral.getType());
      inits.push_back(linalg::FillOp::create(inside, loc, neutral, empty).getResult(0));
      maps.push_back(AffineMap::get(3, 0, {block, column}, inside.getContext()));
    }
    utils::IteratorType parallel = utils::IteratorType::parallel;
    auto blocks = linalg::GenericOp::create(
        inside, loc, ValueRange(inits).getTypes(), inputs, inits, maps,
        ArrayRef<utils::IteratorType>{parallel, utils::IteratorType::reduction, parallel});
    IRMapping mapping;
    reduction.getRegion().cloneInto(&blocks.getRegion(), mapping);
    blocks.getBody()->insertArgument(reduction.getNumDpsInputs(), inside.getF32Type(), loc);
    return blocks.getResults();
  }

  // Computes the results of `reduction` from `blocks`, which hold one row of results per block of
  // rows. The initial values are those of `reduction`.
  SmallVector<Value> sumRest(OpBuilder &inside, linalg::GenericOp reduction, ValueRange blocks) {
    SmallVector<AffineMap> maps(blocks.size(), inside.getMultiDimIdentityMap(2));
    SmallVector<Value> inits(reduction.getOutputs());
    for (OpOperand &init : reduction.getDpsInitsMutable())
      maps.push_back(reduction.getMatchingIndexingMap(&init));
    auto rest = linalg::GenericOp::create(
        inside, reduction.getLoc(), reduction.getResultTypes(), blocks, inits, maps,
        reduction.getIteratorTypesArray(), [&](OpBuilder &in, Location at, ValueRange scalars) {
          SmallVector<Value> sums;
          for (size_t i = 0; i < blocks.size(); ++i) {
            Value yielded = reduction.getBody()->getTerminator()->getOperand(i);
            Operation *combiner = in.clone(*yielded.getDefiningOp());
            combiner->setOperands({scalars[blocks.size() + i], scalars[i]});
            sums.push_back(combiner->getResult(0));
          }
          linalg::YieldOp::create(in, at, sums);
        });
    return rest.getResults();
  }

  kern::FusionOp fusion;
  int64_t rowsPerBlock;
  OpBuilder b;
};

struct SplitColumnReductionsPass
    : lmc::impl::SplitColumnReductionsPassBase<SplitColumnReductionsPass> {
  using SplitColumnReductionsPassBase::SplitColumnReductionsPassBase;

  // Returns the number of rows per block, or 0 if the fusion is not to be split.
  int64_t blockOf(kern::FusionOp fusion) {
    if (fusion.getHero() != kern::Hero::ColumnReduction)
      return 0;
    int64_t rows = 0;
    for (Operation &op : fusion.getBody().front()) {
      auto reduction = reductionOf(op);
      if (!reduction)
        continue;
      rows = reduction.getStaticLoopRanges()[0];
      // After the split, an op that uses a row's index would get the row's index in its block.
      if (op.walk([](linalg::IndexOp) { return WalkResult::interrupt(); }).wasInterrupted())
        return 0;
      for (Value yielded : reduction.getBody()->getTerminator()->getOperands())
        if (!yielded.getDefiningOp() || !arith::getNeutralElement(yielded.getDefiningOp()))
          return 0;
    }
    int64_t block = rowsPerBlock(rows);
    return rows >= minRows && block >= kMinRowsPerBlock ? block : 0;
  }

  void runOnOperation() override {
    SmallVector<kern::FusionOp> fusions;
    getOperation().walk([&](kern::FusionOp fusion) { fusions.push_back(fusion); });
    for (kern::FusionOp fusion : fusions)
      if (int64_t block = blockOf(fusion))
        numSplit += Splitter(fusion, block).split();
  }
};

} // namespace
