#include "test/simt/kernels/Collection.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace lmc::simt {

kern::KernelOp Collection::add(const std::string &text, const Values &values,
                               const std::string &name) {
  std::string error;
  auto parsed = codegen::test::parse(codegen::test::substitute(text, values), error);
  if (!parsed) {
    ADD_FAILURE() << name << ": " << error;
    return {};
  }
  if (!module)
    module = ModuleOp::create(UnknownLoc::get(parsed->getContext()));
  auto kernel = *parsed->getOps<kern::KernelOp>().begin();
  kernel->remove();
  kernel.setSymName(name.empty() ? kernel.getSymName().str() : name);
  module->push_back(kernel);
  return kernel;
}

kern::KernelOp Collection::add(const std::string &text, const Values &values) {
  kern::KernelOp kernel = add(text, values, "");
  if (!kernel)
    return kernel;
  std::string name = kernel.getSymName().str();
  for (auto &[key, value] : values)
    name += "_" + key + value;
  kernel.setSymName(name);
  return kernel;
}

std::vector<CheckedKernel> Collection::expectRight() {
  if (!module)
    return {};
  std::vector<CheckedKernel> checked = checkKernels(*module);
  auto kernels = module->getOps<kern::KernelOp>();
  for (auto [kernel, result] : llvm::zip_equal(kernels, checked)) {
    if (result.failure.empty())
      continue;
    std::string text;
    llvm::raw_string_ostream(text) << kernel;
    ADD_FAILURE() << result.failure << "\n" << text << "\n" << result.cuda.source;
  }
  return checked;
}

namespace {

// `value` as another element type, by a loop of its own.
Value converted(OpBuilder &b, Value value, Type to) {
  auto type = cast<RankedTensorType>(value.getType());
  Location loc = value.getLoc();
  Value empty = tensor::EmptyOp::create(b, loc, type.getShape(), to);
  SmallVector<AffineMap> maps(2, b.getMultiDimIdentityMap(unsigned(type.getRank())));
  SmallVector<utils::IteratorType> loops(size_t(type.getRank()), utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, loc, empty.getType(), value, empty, maps, loops,
             [&](OpBuilder &body, Location at, ValueRange scalars) {
               Value scalar = to.isF32()
                                  ? arith::ExtFOp::create(body, at, to, scalars[0]).getResult()
                                  : arith::TruncFOp::create(body, at, to, scalars[0]);
               linalg::YieldOp::create(body, at, scalar);
             })
      .getResult(0);
}

bool isF32Tensor(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getElementType().isF32() && type.getRank() > 0;
}

// Sums of blocks of rows, which are results as they are: a reduction that is not along the row.
bool isBlockSum(kern::KernelOp kernel, Value value) {
  auto loop = value.getDefiningOp<linalg::GenericOp>();
  return kernel.getHero() == kern::Hero::RowReduction && loop && loop.getNumReductionLoops() &&
         loop.getIteratorTypesArray().back() == utils::IteratorType::parallel;
}

bool isReadByLoopsOnly(BlockArgument input) {
  return llvm::all_of(input.getUses(), [](OpOperand &use) {
    auto loop = dyn_cast<linalg::GenericOp>(use.getOwner());
    return isa<tensor::ExtractOp>(use.getOwner()) || (loop && loop.isDpsInput(&use));
  });
}

void narrowInput(BlockArgument input) {
  OpBuilder b(input.getContext());
  auto type = cast<RankedTensorType>(input.getType());
  input.setType(type.clone(b.getBF16Type()));
  SmallVector<OpOperand *> loops;
  for (OpOperand &use : llvm::make_early_inc_range(input.getUses())) {
    auto extract = dyn_cast<tensor::ExtractOp>(use.getOwner());
    if (!extract) {
      loops.push_back(&use);
      continue;
    }
    extract.getResult().setType(b.getBF16Type());
    b.setInsertionPointAfter(extract);
    auto wide = arith::ExtFOp::create(b, extract.getLoc(), b.getF32Type(), extract.getResult());
    extract.getResult().replaceAllUsesExcept(wide, wide);
  }
  if (loops.empty())
    return;
  b.setInsertionPointToStart(input.getOwner());
  Value wide = converted(b, input, b.getF32Type());
  for (OpOperand *use : loops)
    use->set(wide);
}

// Of a drawn shape: the executor runs 10^5 or so of them in a second.
constexpr int64_t kMostElements = 20000;

} // namespace

void narrow(kern::KernelOp kernel, Draw &draw) {
  const bool all = draw.oneIn(2);
  Block &body = kernel.getBody().front();
  for (BlockArgument input : body.getArguments())
    if (isF32Tensor(input) && isReadByLoopsOnly(input) && (all || draw.oneIn(2)))
      narrowInput(input);
  Operation *yield = body.getTerminator();
  OpBuilder b(yield);
  for (OpOperand &result : yield->getOpOperands())
    if (isF32Tensor(result.get()) && !isBlockSum(kernel, result.get()) && (all || draw.oneIn(2)))
      result.set(converted(b, result.get(), b.getBF16Type()));
}

void spaceRows(kern::KernelOp kernel, Draw &draw) {
  Block &body = kernel.getBody().front();
  SmallVector<Type> types(body.getArgumentTypes());
  llvm::append_range(types, body.getTerminator()->getOperandTypes());
  SmallVector<int64_t> rows, pitches;
  for (Type type : types) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
    rows.push_back(1);
    pitches.push_back(0);
    if (shape.size() < 2 || draw.oneIn(3))
      continue;
    // Runs of one or more of the inner dimensions.
    const int64_t outer = draw.between(1, int64_t(shape.size()) - 1);
    for (int64_t extent : shape.take_front(size_t(outer)))
      rows.back() *= extent;
    int64_t width = 1;
    for (int64_t extent : shape.drop_front(size_t(outer)))
      width *= extent;
    pitches.back() = width + draw.pick({0, 1, 3, 8, 24, 64});
  }
  kernel.setArgRows(rows);
  kernel.setArgPitches(pitches);
}

void expectRightInDrawnShapes(int64_t count, Extents most,
                              const std::function<std::string(Extents, Draw &)> &textOf) {
  Collection kernels;
  for (int64_t seed = 1, last = drawCount(count); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    Extents e;
    e.columns = draw.extent(most.columns);
    e.rows = draw.extent(std::clamp<int64_t>(kMostElements / e.columns, 1, most.rows));
    kern::KernelOp kernel = kernels.add(textOf(e, draw), {}, "");
    ASSERT_TRUE(kernel);
    kernel.setSymName((kernel.getSymName() + "_" + std::to_string(e.rows) + "x" +
                       std::to_string(e.columns) + "_seed" + std::to_string(seed))
                          .str());
    if (draw.oneIn(2))
      narrow(kernel, draw);
    if (draw.oneIn(2))
      spaceRows(kernel, draw);
  }
  kernels.expectRight();
}

void expectRightInDrawnShapes(const std::string &text, int64_t count, Extents most,
                              const std::function<Values(Extents, Draw &)> &valuesOf) {
  expectRightInDrawnShapes(count, most, [&](Extents e, Draw &draw) {
    return codegen::test::substitute(text, valuesOf(e, draw));
  });
}

} // namespace lmc::simt
