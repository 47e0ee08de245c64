// dist-expand-muon: replaces each lm.muon by the ops that compute it. If ranks divide a parameter,
// they gather its direction, the matrix that is orthogonalized. Passes.td shows an example.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "compiler/cost/Muon.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_EXPANDMUONPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using dist::Axis;

// The directions in a window (consecutive steps expanded together) have at most this many bytes.
static constexpr int64_t kMostBytes = int64_t(1) << 30;
// The maximum number of steps in a window.
static constexpr size_t kMostSteps = 64;

namespace {

enum class Owners { Auto, Yes, No };

// How the matrices of one shape are orthogonalized.
enum class Way {
  InPlace, // every rank orthogonalizes adjacent matrices as one stack, without copying them
  Stacked, // every rank orthogonalizes a stack of copies of all matrices
  Owned,   // each matrix is orthogonalized by one rank
};

// Where a matrix lies.
struct Place {
  size_t step, matrix;           // indices of the step in its window, and of the matrix in the step
  int64_t offset;                // offset of the matrix's first element in the step's parameter
  int64_t column = 0, pitch = 0; // as in lm::MatrixAttr
};

// The matrices of one shape in a window.
struct Group {
  int64_t rows, columns;
  SmallVector<Place> places;
};

Type newtonSchulzType(lm::MuonOp step) {
  return step.getNsDtype() ? *step.getNsDtype()
                           : getElementTypeOrSelf(step.getParameter().getType());
}

SmallVector<Group> groupsOf(ArrayRef<lm::MuonOp> window) {
  SmallVector<Group> groups;
  for (auto [number, each] : llvm::enumerate(window)) {
    lm::MuonOp step = each;
    for (auto [index, matrix] : llvm::enumerate(step.getMatrices().getAsRange<lm::MatrixAttr>())) {
      auto known = llvm::find_if(groups, [&](const Group &group) {
        return group.rows == matrix.getRows() && group.columns == matrix.getColumns();
      });
      if (known == groups.end())
        known = groups.insert(groups.end(), Group{matrix.getRows(), matrix.getColumns(), {}});
      known->places.push_back(
          {number, index, matrix.getOffset(), matrix.getColumn(), matrix.getPitch()});
    }
  }
  return groups;
}

// Returns how many matrices, from matrix `first` on, lie one after the other in one parameter.
size_t runLength(const Group &group, size_t first) {
  const int64_t elements = group.rows * group.columns;
  const Place &begin = group.places[first];
  size_t count = 1;
  if (begin.pitch)
    return 1;
  while (first + count < group.places.size() && group.places[first + count].step == begin.step &&
         !group.places[first + count].pitch &&
         group.places[first + count].offset == begin.offset + int64_t(count) * elements)
    ++count;
  return count;
}

// Expands the steps window by window. A window is consecutive steps.
class MuonExpander {
public:
  MuonExpander(ModuleOp module, dist::MeshOp mesh, Owners owners, const cost::CostModel *model,
               const cost::Group &group)
      : symbols(module), b(module.getContext()), mesh(mesh), ranks(mesh.ranksAlong(Axis::Shard)),
        owners(owners), model(model), group(group) {}

  void expand(ArrayRef<lm::MuonOp> steps) {
    const size_t size = windowSize(steps);
    for (; !steps.empty(); steps = steps.drop_front(std::min(size, steps.size())))
      expandWindow(steps.take_front(size));
  }

private:
  using Window = ArrayRef<lm::MuonOp>;

  // Predicts the seconds for `group`. Without a cost model, returns a number that grows with FLOPs.
  double seconds(lm::MuonOp step, const Group &group, Way way) const {
    const Type type = newtonSchulzType(step);
    cost::MuonWork work{group.rows, group.columns, int64_t(group.places.size()),
                        int64_t(step.getNsSteps()),
                        type.isBF16()  ? DataType::BF16
                        : type.isF64() ? DataType::F64
                                       : DataType::F32};
    if (!model)
      return double(way == Way::Owned ? int64_t(llvm::divideCeil(work.matrices, ranks))
                                      : work.matrices) *
             double(work.rows) * double(work.columns) * double(std::min(work.rows, work.columns));
    if (way == Way::Owned)
      return cost::ownersSeconds(work, this->group, *model);
    if (way == Way::Stacked)
      return cost::stackedSeconds(work, *model);
    double sum = 0;
    for (size_t first = 0; first < group.places.size(); first += size_t(work.matrices)) {
      work.matrices = int64_t(runLength(group, first));
      sum += cost::orthogonalizeSeconds(work, *model);
    }
    return sum;
  }

  Way wayOf(lm::MuonOp step, const Group &group) const {
    // Matrices whose rows are not adjacent must be copied to a stack.
    const bool copies = llvm::any_of(group.places, [](const Place &place) { return place.pitch; });
    const Way first = copies ? Way::Stacked : Way::InPlace;
    if (group.places.size() < 2)
      return first;
    const bool mayOwn = ranks > 1 && owners != Owners::No;
    if (mayOwn && owners == Owners::Yes)
      return Way::Owned;
    Way best = first;
    if (!model)
      return best;
    for (Way way : {Way::Stacked, Way::Owned})
      if ((way != Way::Owned || mayOwn) && seconds(step, group, way) < seconds(step, group, best))
        best = way;
    return best;
  }

  // Returns the number of steps per window for which the predicted time of all `steps` is shortest.
  size_t windowSize(Window steps) const {
    size_t best = 1;
    double least = 0;
    for (size_t size = 1; size <= std::min(steps.size(), kMostSteps); ++size) {
      int64_t bytes = 0;
      for (lm::MuonOp step : steps.take_front(size))
        bytes += tensorTypeOf(step.getParameter()).getNumElements() * ranks *
                 int64_t(newtonSchulzType(step).getIntOrFloatBitWidth() / 8);
      if (size > 1 && bytes > kMostBytes)
        break;
      double sum = 0;
      for (Window rest = steps; !rest.empty();) {
        Window window = rest.take_front(size);
        for (const Group &group : groupsOf(window))
          sum += seconds(window[0], group, wayOf(window[0], group));
        rest = rest.drop_front(window.size());
      }
      if (size == 1 || sum < least) {
        best = size;
        least = sum;
      }
    }
    return best;
  }

  Value shardRank(lm::MuonOp step) {
    return loadShardRank(b, step.getLoc(), mesh, symbols, step.getLr().getType());
  }

  // Returns a matrix [rows, columns] of a direction. If its rows are not adjacent, they are copied.
  Value matrixAt(Location loc, const Place &place, const Group &group) {
    Value direction = directions[place.step];
    if (!place.pitch)
      return reshape(b, loc, sliceRows(b, loc, direction, place.offset, group.rows * group.columns),
                     {group.rows, group.columns});
    Value block =
        reshape(b, loc, sliceRows(b, loc, direction, place.offset, group.rows * place.pitch),
                {group.rows, place.pitch});
    RankedTensorType type = tensorTypeOf(block);
    SmallVector<Type> parts;
    for (int64_t count : {place.column, group.columns, place.pitch - place.column - group.columns})
      if (count > 0)
        parts.push_back(resized(type, 1, count));
    auto split = lm::SplitOp::create(b, loc, parts, block);
    Value part = split.getResult(place.column ? 1 : 0);
    return lm::CastOp::create(b, loc, part.getType(), part);
  }

  Value orthogonalize(lm::MuonOp step, Value stack, int64_t rows) {
    return lm::OrthogonalizeOp::create(b, step.getLoc(), stack.getType(), stack, step.getEps(),
                                       b.getI64IntegerAttr(rows), step.getNsStepsAttr(),
                                       step.getNsCoefficientsAttr());
  }

  // Orthogonalizes all matrices. Those that lie one after the other form one stack.
  void orthogonalizeInPlace(Window window, const Group &group) {
    const int64_t elements = group.rows * group.columns;
    for (size_t begin = 0, count = 0; begin < group.places.size(); begin += count) {
      count = runLength(group, begin);
      const Place &first = group.places[begin];
      lm::MuonOp step = window[first.step];
      Location loc = step.getLoc();
      Value stack =
          sliceRows(b, loc, directions[first.step], first.offset, int64_t(count) * elements);
      stack = reshape(b, loc, stack, {int64_t(count) * group.rows, group.columns});
      Value results = orthogonalize(step, stack, group.rows);
      results = reshape(b, loc, results, {int64_t(count) * elements});
      for (size_t i = 0; i < count; ++i)
        parts[first.step][group.places[begin + i].matrix] =
            reshape(b, loc, sliceRows(b, loc, results, int64_t(i) * elements, elements),
                    {group.rows, group.columns});
    }
  }

  // Stacks all matrices of the group. Each of `ranks` ranks orthogonalizes an equal share of the
  // stack, and gathers the other ranks' results. Copies of the last matrix fill the last shares.
  void orthogonalizeStack(Window window, const Group &group, int64_t ranks) {
    lm::MuonOp step = window.back();
    Location loc = step.getLoc();
    const int64_t elements = group.rows * group.columns;
    const int64_t own = int64_t(llvm::divideCeil(group.places.size(), uint64_t(ranks)));
    Value stack = tensor::EmptyOp::create(b, loc, {own * ranks * elements}, newtonSchulzType(step));
    for (int64_t number = 0; number < own * ranks; ++number) {
      const Place &place = group.places[std::min(size_t(number), group.places.size() - 1)];
      stack = insert(b, loc, reshape(b, loc, matrixAt(loc, place, group), {elements}), stack,
                     {number * elements});
    }
    stack = reshape(b, loc, stack, {own * ranks * group.rows, group.columns});
    if (ranks > 1)
      stack = lm::OwnRowsOp::create(b, loc, resized(tensorTypeOf(stack), 0, own * group.rows),
                                    stack, shardRank(step));
    Value all = orthogonalize(step, stack, group.rows);
    if (ranks > 1)
      all = createCollective<dist::AllGatherOp>(b, loc, mesh, Axis::Shard, all);
    all = reshape(b, loc, all, {own * ranks * elements});
    for (auto [number, place] : llvm::enumerate(group.places))
      parts[place.step][place.matrix] =
          reshape(b, loc, sliceRows(b, loc, all, int64_t(number) * elements, elements),
                  {group.rows, group.columns});
  }

  void expandWindow(Window window) {
    lm::MuonOp last = window.back();
    b.setInsertionPoint(last);
    directions.clear();
    parts.clear();
    SmallVector<Value> moments;
    SmallVector<SmallVector<int64_t>> shapes; // per step: shape of the undivided parameter
    for (lm::MuonOp step : window) {
      RankedTensorType type = tensorTypeOf(step.getParameter());
      auto direction = lm::MuonDirectionOp::create(
          b, step.getLoc(), type, type.clone(newtonSchulzType(step)), step.getGradient(),
          step.getMoment1(), step.getNorm(), step.getMomentum(), step.getClipGrad(),
          step.getNesterovAttr());
      Value whole = createCollective<dist::AllGatherOp>(b, step.getLoc(), mesh, Axis::Shard,
                                                        direction.getDirection());
      moments.push_back(direction.getNewMoment1());
      shapes.emplace_back(tensorTypeOf(whole).getShape());
      directions.push_back(
          reshape(b, step.getLoc(), whole, {tensorTypeOf(whole).getNumElements()}));
      parts.emplace_back(step.getMatrices().size());
    }
    for (const Group &group : groupsOf(window)) {
      const Way way = wayOf(last, group);
      if (way == Way::InPlace)
        orthogonalizeInPlace(window, group);
      else
        orthogonalizeStack(window, group, way == Way::Owned ? ranks : 1);
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
      // All new ops stand right before `last`, so ops that read an earlier step's results move
      // there.
      for (Operation *user : llvm::make_early_inc_range(step->getUsers()))
        if (user->isBeforeInBlock(last))
          user->moveBefore(last);
      step->replaceAllUsesWith(results);
      if (step != last)
        step->erase();
    }
    last->erase();
  }

  SymbolTable symbols;
  OpBuilder b;
  dist::MeshOp mesh;
  const int64_t ranks; // the number of ranks that divide a parameter
  const Owners owners;
  const cost::CostModel *model; // may be null
  const cost::Group group;
  SmallVector<Value> directions;         // per step of the window: its direction, a vector
  SmallVector<SmallVector<Value>> parts; // the orthogonalized matrices of each step
};

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
    const auto known = llvm::StringSwitch<std::optional<Owners>>(owners)
                           .Case("auto", Owners::Auto)
                           .Case("yes", Owners::Yes)
                           .Case("no", Owners::No)
                           .Default(std::nullopt);
    if (!known) {
      module.emitError("owners must be auto, yes or no, not '") << owners << "'";
      return signalPassFailure();
    }
    SmallVector<lm::MuonOp> steps(optimizer.getBody().front().getOps<lm::MuonOp>());
    MuonExpander(module, mesh, *known, model, group).expand(steps);
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
