// dist-expand-muon: replaces lm.muon by its parts, and lets ranks that divide a parameter gather
// the direction of a step. Passes.td shows an example.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "compiler/cost/Muon.h"
#include "dialects/lm/TensorTypes.h"
#include "runtime/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_EXPANDMUONPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using dist::Axis;

// The scalar that holds the rank's position along the axis `shard`.
static constexpr StringLiteral kShardRank = "run.shard_rank";

// The most bytes of directions of steps that are taken together. Of the smallest matrices, several
// layers then are, and of the largest one.
static constexpr int64_t kMostBytes = int64_t(1) << 30;

namespace {

enum class Owners { Auto, Yes, No };

// A matrix of a step.
struct Place {
  size_t step, matrix; // indices in a window and in the step's `matrices`
  int64_t offset;      // in the step's parameter
};

// The matrices of one shape in a window.
struct Group {
  int64_t rows, columns;
  SmallVector<Place> places;
};

// Expands steps, a window of consecutive ones after the other.
class MuonExpander {
public:
  MuonExpander(ModuleOp module, dist::MeshOp mesh, Owners owners, const cost::CostModel *model,
               const cost::Group &group)
      : symbols(module), b(module.getContext()), mesh(mesh), ranks(mesh.ranksAlong(Axis::Shard)),
        owners(owners), model(model), group(group) {}

  void expand(ArrayRef<lm::MuonOp> steps);

private:
  using Window = ArrayRef<lm::MuonOp>;

  double seconds(lm::MuonOp step, const Group &group, bool isOwned) const;
  bool isOwned(lm::MuonOp step, const Group &group) const;
  size_t windowSize(Window steps) const;
  Value shardRank(lm::MuonOp step);
  Value orthogonalize(lm::MuonOp step, Value stack, int64_t rows);
  void orthogonalizeByAll(Window window, const Group &group);
  void orthogonalizeByOwners(Window window, const Group &group);
  void expandWindow(Window window);

  SymbolTable symbols;
  OpBuilder b;
  dist::MeshOp mesh;
  const int64_t ranks; // that divide a parameter
  const Owners owners;
  const cost::CostModel *model; // may be null
  const cost::Group group;
  SmallVector<Value> directions;         // of the window's steps: whole, as vectors
  SmallVector<SmallVector<Value>> parts; // of each step: its orthogonalized matrices
};

} // namespace

static Type newtonSchulzType(lm::MuonOp step) {
  return step.getNsDtype() ? *step.getNsDtype()
                           : getElementTypeOrSelf(step.getParameter().getType());
}

static SmallVector<Group> groupsOf(ArrayRef<lm::MuonOp> window) {
  SmallVector<Group> groups;
  for (auto [number, each] : llvm::enumerate(window)) {
    lm::MuonOp step = each;
    for (auto [index, matrix] : llvm::enumerate(step.getMatrices().getAsRange<lm::MatrixAttr>())) {
      auto known = llvm::find_if(groups, [&](const Group &group) {
        return group.rows == matrix.getRows() && group.columns == matrix.getColumns();
      });
      if (known == groups.end())
        known = groups.insert(groups.end(), Group{matrix.getRows(), matrix.getColumns(), {}});
      known->places.push_back({number, index, matrix.getOffset()});
    }
  }
  return groups;
}

//===-- Who orthogonalizes what -------------------------------------------------------------===//

// Returns the time of the group's matrices, if each is orthogonalized by one rank (`isOwned`) or by
// all. Without a cost model, it is the operations of one rank.
double MuonExpander::seconds(lm::MuonOp step, const Group &group, bool isOwned) const {
  const Type type = newtonSchulzType(step);
  const cost::MuonWork work{group.rows, group.columns, int64_t(group.places.size()),
                            int64_t(step.getNsSteps()),
                            type.isBF16()  ? DataType::BF16
                            : type.isF64() ? DataType::F64
                                           : DataType::F32};
  if (!model)
    return double(isOwned ? llvm::divideCeil(work.matrices, ranks) : work.matrices) *
           double(work.rows) * double(work.columns) * double(std::min(work.rows, work.columns));
  return isOwned ? cost::ownersSeconds(work, this->group, *model)
                 : cost::orthogonalizeSeconds(work, *model);
}

bool MuonExpander::isOwned(lm::MuonOp step, const Group &group) const {
  if (ranks == 1 || group.places.size() < 2 || owners == Owners::No ||
      (owners == Owners::Auto && !model))
    return false;
  return owners == Owners::Yes || seconds(step, group, true) < seconds(step, group, false);
}

// Returns the number of steps that are taken together.
size_t MuonExpander::windowSize(Window steps) const {
  if (ranks == 1 || owners == Owners::No)
    return 1;
  size_t best = 1;
  double least = 0;
  for (size_t size = 1; size <= std::min(steps.size(), size_t(ranks)); ++size) {
    int64_t bytes = 0;
    for (lm::MuonOp step : steps.take_front(size))
      bytes += cast<RankedTensorType>(step.getParameter().getType()).getNumElements() * ranks *
               int64_t(newtonSchulzType(step).getIntOrFloatBitWidth() / 8);
    if (size > 1 && bytes > kMostBytes)
      break;
    double sum = 0;
    for (Window rest = steps; !rest.empty();) {
      Window window = rest.take_front(size);
      for (const Group &group : groupsOf(window))
        sum += seconds(window[0], group, isOwned(window[0], group));
      rest = rest.drop_front(window.size());
    }
    if (size == 1 || sum < least) {
      best = size;
      least = sum;
    }
  }
  return best;
}

//===-- Expansion ---------------------------------------------------------------------------===//

// Returns the rank's position along the axis `shard`, of the type of `step`'s scalars.
Value MuonExpander::shardRank(lm::MuonOp step) {
  auto variable = symbols.lookup<lm::VariableOp>(kShardRank);
  if (!variable) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(mesh);
    variable = lm::VariableOp::create(b, mesh.getLoc(), kShardRank, lm::VariableKind::Scalar,
                                      step.getLr().getType(),
                                      lm::InitAttr::get(b.getContext(), lm::InitKind::None));
    variable.setStepValue(lm::StepValue::ShardRank);
    symbols.insert(variable);
  }
  return lm::LoadOp::create(b, step.getLoc(), variable.getType(), kShardRank);
}

Value MuonExpander::orthogonalize(lm::MuonOp step, Value stack, int64_t rows) {
  return lm::OrthogonalizeOp::create(b, step.getLoc(), stack.getType(), stack, step.getEps(),
                                     b.getI64IntegerAttr(rows), step.getNsStepsAttr(),
                                     step.getNsCoefficientsAttr());
}

// Makes stacks of matrices that lie next to each other.
void MuonExpander::orthogonalizeByAll(Window window, const Group &group) {
  const int64_t elements = group.rows * group.columns;
  for (ArrayRef<Place> rest = group.places; !rest.empty();) {
    const Place &first = rest.front();
    lm::MuonOp step = window[first.step];
    size_t count = 1;
    while (count < rest.size() && rest[count].step == first.step &&
           rest[count].offset == first.offset + int64_t(count) * elements)
      ++count;
    Value stack = elementsOf(b, step.getLoc(), directions[first.step], first.offset,
                             int64_t(count) * elements);
    stack = reshapeTo(b, step.getLoc(), stack, {int64_t(count) * group.rows, group.columns});
    Value results = orthogonalize(step, stack, group.rows);
    results = reshapeTo(b, step.getLoc(), results, {int64_t(count) * elements});
    for (size_t i = 0; i < count; ++i)
      parts[first.step][rest[i].matrix] = reshapeTo(
          b, step.getLoc(), elementsOf(b, step.getLoc(), results, int64_t(i) * elements, elements),
          {group.rows, group.columns});
    rest = rest.drop_front(count);
  }
}

// Stacks all matrices of the group, so that each rank has as many rows. The last matrix fills up
// the stack.
void MuonExpander::orthogonalizeByOwners(Window window, const Group &group) {
  lm::MuonOp step = window.back();
  Location loc = step.getLoc();
  const int64_t elements = group.rows * group.columns;
  const int64_t own = int64_t(llvm::divideCeil(group.places.size(), uint64_t(ranks)));
  Value stack = tensor::EmptyOp::create(b, loc, {own * ranks * elements}, newtonSchulzType(step));
  for (int64_t number = 0; number < own * ranks; ++number) {
    const Place &place = group.places[std::min(size_t(number), group.places.size() - 1)];
    stack = tensor::InsertSliceOp::create(
        b, loc, elementsOf(b, loc, directions[place.step], place.offset, elements), stack,
        SmallVector<OpFoldResult>{b.getIndexAttr(number * elements)},
        SmallVector<OpFoldResult>{b.getIndexAttr(elements)},
        SmallVector<OpFoldResult>{b.getIndexAttr(1)});
  }
  stack = reshapeTo(b, loc, stack, {own * ranks * group.rows, group.columns});
  auto ownType = resized(tensorTypeOf(stack), 0, own * group.rows);
  Value mine = lm::OwnRowsOp::create(b, loc, ownType, stack, shardRank(step));
  Value all = createCollective<dist::AllGatherOp>(b, loc, mesh, Axis::Shard,
                                                  orthogonalize(step, mine, group.rows),
                                                  /*backward=*/false);
  all = reshapeTo(b, loc, all, {own * ranks * elements});
  for (auto [number, place] : llvm::enumerate(group.places))
    parts[place.step][place.matrix] =
        reshapeTo(b, loc, elementsOf(b, loc, all, int64_t(number) * elements, elements),
                  {group.rows, group.columns});
}

void MuonExpander::expandWindow(Window window) {
  lm::MuonOp last = window.back();
  b.setInsertionPoint(last);
  directions.clear();
  parts.clear();
  SmallVector<Value> moments;
  SmallVector<SmallVector<int64_t>> shapes; // of the whole parameters
  for (lm::MuonOp step : window) {
    RankedTensorType type = tensorTypeOf(step.getParameter());
    auto direction =
        lm::MuonDirectionOp::create(b, step.getLoc(), type, type.clone(newtonSchulzType(step)),
                                    step.getGradient(), step.getMoment1(), step.getNorm(),
                                    step.getMomentum(), step.getClipGrad(), step.getNesterovAttr());
    Value whole = direction.getDirection();
    if (ranks > 1)
      whole = createCollective<dist::AllGatherOp>(b, step.getLoc(), mesh, Axis::Shard, whole,
                                                  /*backward=*/false);
    moments.push_back(direction.getNewMoment1());
    shapes.emplace_back(tensorTypeOf(whole).getShape());
    directions.push_back(
        reshapeTo(b, step.getLoc(), whole, {tensorTypeOf(whole).getNumElements()}));
    parts.emplace_back(step.getMatrices().size());
  }
  for (const Group &group : groupsOf(window)) {
    if (isOwned(last, group))
      orthogonalizeByOwners(window, group);
    else
      orthogonalizeByAll(window, group);
  }
  for (auto [number, each] : llvm::enumerate(window)) {
    lm::MuonOp step = each;
    Location loc = step.getLoc();
    RankedTensorType type = tensorTypeOf(step.getParameter());
    Value orthogonal =
        lm::ScaleMatricesOp::create(b, loc, type.clone(shapes[number]), parts[number],
                                    step.getMatricesAttr(), step.getAdjustLrFnAttr());
    if (ranks > 1)
      orthogonal = lm::OwnRowsOp::create(b, loc, type, orthogonal, shardRank(step));
    SmallVector<Type> types{type, step.getUpdateSq().getType(), step.getParamSq().getType()};
    if (step.getCompute())
      types.push_back(step.getCompute().getType());
    SmallVector<Value> operands{step.getParameter(), orthogonal, step.getNorm(), step.getLr()};
    if (step.getWeightDecay())
      operands.push_back(step.getWeightDecay());
    auto update = lm::MuonUpdateOp::create(b, loc, types, operands);
    SmallVector<Value> results{update.getNewParameter(), moments[number], update.getUpdateSq(),
                               update.getParamSq()};
    if (step.getCompute())
      results.push_back(update.getCompute());
    // Stores of earlier steps stand before this place.
    for (Operation *user : llvm::make_early_inc_range(step->getUsers()))
      if (user->isBeforeInBlock(last))
        user->moveBefore(last);
    step->replaceAllUsesWith(results);
    if (step != last)
      step->erase();
  }
  last->erase();
}

void MuonExpander::expand(Window steps) {
  const size_t size = windowSize(steps);
  for (; !steps.empty(); steps = steps.drop_front(std::min(size, steps.size())))
    expandWindow(steps.take_front(size));
}

namespace {
struct ExpandMuonPass : lmc::impl::ExpandMuonPassBase<ExpandMuonPass> {
  using ExpandMuonPassBase::ExpandMuonPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    auto optimizer = symbols.lookup<func::FuncOp>(names::kOptimizer);
    auto mesh = symbols.lookup<dist::MeshOp>(kMesh);
    if (!optimizer || !mesh) {
      module.emitOpError("has no @optimizer or no mesh; run lm-insert-optimizer and "
                         "dist-shard-state first");
      return signalPassFailure();
    }
    if (owners != "auto" && owners != "yes" && owners != "no") {
      module.emitError("owners must be auto, yes or no, not '") << owners << "'";
      return signalPassFailure();
    }
    SmallVector<lm::MuonOp> steps(optimizer.getBody().front().getOps<lm::MuonOp>());
    if (!steps.empty())
      MuonExpander(module, mesh,
                   owners == "auto"  ? Owners::Auto
                   : owners == "yes" ? Owners::Yes
                                     : Owners::No,
                   model, group)
          .expand(steps);
  }

  const cost::CostModel *model = nullptr;
  cost::Group group;
};
} // namespace

std::unique_ptr<Pass> lmc::createExpandMuonPass(ExpandMuonPassOptions options,
                                                const cost::CostModel *model, cost::Group group) {
  auto pass = std::make_unique<ExpandMuonPass>(std::move(options));
  pass->model = model;
  pass->group = group;
  return pass;
}
