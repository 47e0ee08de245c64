// dist-parallel-experts: divides the experts of each layer between neighbouring ranks. Passes.td
// shows an example.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "dialects/dist/Dist.h"
#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"

#include <algorithm>
#include <cmath>

namespace lmc {
#define GEN_PASS_DEF_PARALLELEXPERTSPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using dist::Axis;

namespace {

// Returns the values whose row i belongs to row i of `sort`. These are the results of lm.take_rows
// and of the ops between lm.take_rows and lm.combine_rows.
llvm::SetVector<Value> valuesOfRows(lm::SortRowsOp sort) {
  llvm::SetVector<Value> values;
  for (Operation *user : sort.getRows().getUsers())
    if (auto take = dyn_cast<lm::TakeRowsOp>(user))
      values.insert(take.getResult());
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers())
      if (!isa<lm::CombineRowsOp>(user))
        values.insert_range(user->getResults());
  return values;
}

// Replaces each lm.swiglu over the rows of `sort` by lm.expert_swiglu, which computes only the rows
// that belong to an expert.
void useRowsOfExperts(lm::SortRowsOp sort) {
  for (Operation *reader : llvm::to_vector(sort.getOffsets().getUsers())) {
    auto linear = dyn_cast<lm::ExpertLinearOp>(reader);
    if (!linear)
      continue;
    for (Operation *user : llvm::to_vector(linear.getResult().getUsers())) {
      auto split = dyn_cast<lm::SplitOp>(user);
      if (!split || split.getParts().size() != 2)
        continue;
      Value gate = split.getParts()[0], up = split.getParts()[1];
      for (Operation *of : llvm::to_vector(gate.getUsers())) {
        auto swiglu = dyn_cast<lm::SwigluOp>(of);
        if (!swiglu || swiglu.getGate() != gate || swiglu.getUp() != up)
          continue;
        OpBuilder b(swiglu);
        swiglu.replaceAllUsesWith(lm::ExpertSwigluOp::create(b, swiglu.getLoc(), swiglu.getType(),
                                                             linear.getResult(), sort.getOffsets())
                                      .getResult());
        swiglu.erase();
      }
      if (split->use_empty())
        split.erase();
    }
  }
}

class ExpertDivider {
public:
  ExpertDivider(ModuleOp module, dist::MeshOp mesh, double capacity)
      : module(module), symbols(module), b(module.getContext()), mesh(mesh),
        ranks(mesh.ranksAlong(Axis::Expert)), capacity(capacity) {
    module.walk([&](func::CallOp call) { calls[call.getCallee()].push_back(call); });
  }

  LogicalResult run() {
    SmallVector<lm::SortRowsOp> sorts;
    module.walk([&](lm::SortRowsOp sort) { sorts.push_back(sort); });
    for (lm::SortRowsOp sort : sorts)
      if (failed(divide(sort)))
        return failure();
    return success();
  }

private:
  // Makes `sort` read the choices of the tokens of all ranks along `expert`, and keep only choices
  // of this rank's experts. Changes the ops that process the sorted rows in the same way.
  LogicalResult divide(lm::SortRowsOp sort) {
    const RankedTensorType choices = tensorTypeOf(sort.getExperts());
    const int64_t experts = tensorTypeOf(sort.getOffsets()).getDimSize(0) - 1;
    const int64_t tokens = choices.getDimSize(0) * ranks, chosen = choices.getDimSize(1);
    if (experts % ranks != 0)
      return sort.emitOpError("sorts by ")
             << experts << " experts, which " << ranks << " ranks cannot divide evenly";
    // This number of rows is enough: a token chooses each expert of this rank at most once.
    const int64_t own = experts / ranks, rows = tokens * std::min(chosen, own);

    SmallVector<lm::CombineRowsOp> combines;
    for (Operation *user : sort.getRows().getUsers())
      if (auto combine = dyn_cast<lm::CombineRowsOp>(user))
        combines.push_back(combine);
      else if (!isa<lm::TakeRowsOp>(user))
        return user->emitOpError(
            "reads rows of experts, and dist-parallel-experts does not know how "
            "ranks divide them");
    const llvm::SetVector<Value> ofRows = valuesOfRows(sort);
    SmallVector<OpOperand *> weights;
    for (Value value : ofRows)
      for (Operation *user : value.getUsers())
        if (auto linear = dyn_cast<lm::ExpertLinearOp>(user))
          weights.push_back(&linear.getWeightMutable());

    for (lm::CombineRowsOp combine : combines) {
      if (combine.getWeights().getDefiningOp() != sort.getExperts().getDefiningOp())
        return combine.emitOpError("has weights of another router than its rows");
      combine.getWeightsMutable().assign(exchanged(combine.getWeights(), "exchange.weights"));
      // Each rank adds its own experts' results; the reduce-scatter adds the sums of all ranks.
      Value own = combine.getResult();
      const RankedTensorType type = tensorTypeOf(own);
      own.setType(resized(type, 0, type.getDimSize(0) * ranks));
      b.setInsertionPointAfter(combine);
      Value sum = createCollective<dist::ReduceScatterOp>(
          b, NameLoc::get(b.getStringAttr("exchange.sum")), mesh, Axis::Expert, own);
      own.replaceAllUsesExcept(sum, sum.getDefiningOp());
    }
    for (Operation *user : llvm::to_vector(sort.getRows().getUsers()))
      if (auto take = dyn_cast<lm::TakeRowsOp>(user))
        take.getXMutable().assign(exchanged(take.getX(), "exchange"));
    for (Value value : ofRows)
      value.setType(resized(tensorTypeOf(value), 0, rows));
    for (OpOperand *weight : weights)
      if (failed(divideWeight(*weight)))
        return failure();

    auto function = sort->getParentOfType<func::FuncOp>();
    const Type real =
        tensorTypeOf(sort.getExperts().getDefiningOp()->getResult(0)).getElementType();
    sort.getRankMutable().assign(rankIn(function, RankedTensorType::get({}, real)));
    sort.getExpertsMutable().assign(exchanged(sort.getExperts(), "exchange.choices"));
    sort.setGroups(uint64_t(ranks));
    sort.getOffsets().setType(RankedTensorType::get({own + 1}, b.getI32Type()));
    sort.getRows().setType(RankedTensorType::get({rows}, b.getI32Type()));
    sort.getPlaces().setType(RankedTensorType::get({tokens * chosen}, b.getI32Type()));
    useRowsOfExperts(sort);
    if (capacity > 0)
      cutIntoWindows(sort, choices.getNumElements());
    return success();
  }

  // Cuts the rows of `sort` into windows of capacity * choices rows. `choices` is the number of
  // choices that one rank's tokens make. The ops from `sort` to lm.combine_rows then process the
  // first window. Clones of these ops process the other windows, and all results are added.
  void cutIntoWindows(lm::SortRowsOp sort, int64_t choices) {
    const int64_t all = tensorTypeOf(sort.getRows()).getDimSize(0);
    const auto most = int64_t(std::ceil(capacity * double(choices)));
    if (most >= all)
      return;
    lm::CombineRowsOp combine;
    lm::LateRowsOp late;
    for (Operation *user : sort->getUsers())
      if (auto last = dyn_cast<lm::CombineRowsOp>(user))
        combine = last;
      else if (auto watched = dyn_cast<lm::LateRowsOp>(user))
        late = watched;
    const llvm::SetVector<Value> ofRows = valuesOfRows(sort);
    llvm::SetVector<Operation *> found;
    found.insert(sort);
    found.insert(combine);
    for (Value value : ofRows)
      found.insert(value.getDefiningOp());
    SmallVector<Operation *> chain(found.getArrayRef());
    llvm::sort(chain, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });

    auto hold = [&](lm::SortRowsOp sort, int64_t rows, const IRMapping &mapping) {
      sort.getRows().setType(RankedTensorType::get({rows}, b.getI32Type()));
      for (Value value : ofRows) {
        Value own = mapping.lookupOrDefault(value);
        own.setType(resized(tensorTypeOf(own), 0, rows));
      }
    };
    hold(sort, most, IRMapping());
    Value sum = combine.getResult();
    Operation *reader = *sum.user_begin(); // the reduce-scatter
    b.setInsertionPoint(reader);
    for (int64_t first = most; first < all; first += most) {
      IRMapping mapping;
      for (Operation *op : chain)
        b.clone(*op, mapping);
      auto window = cast<lm::SortRowsOp>(mapping.lookup(sort.getRows()).getDefiningOp());
      window.setFirst(uint64_t(first));
      hold(window, std::min(most, all - first), mapping);
      sum = lm::AddOp::create(b, combine.getLoc(), sum, mapping.lookup(combine.getResult()));
      if (late)
        late.getOffsetsMutable().append(window.getOffsets());
    }
    reader->setOperand(0, sum);
    if (late)
      late->moveBefore(reader);
  }

  // Shrinks the weight that an op reads to the experts of one rank.
  LogicalResult divideWeight(OpOperand &operand) {
    auto argument = dyn_cast<BlockArgument>(operand.get());
    if (!argument)
      return divideLoad(operand.get(), operand.getOwner());
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    const RankedTensorType type = tensorTypeOf(argument);
    argument.setType(resized(type, 0, type.getDimSize(0) / ranks));
    function.setType(FunctionType::get(module.getContext(),
                                       function.getBody().front().getArgumentTypes(),
                                       function.getFunctionType().getResults()));
    for (func::CallOp call : calls.lookup(function.getSymName()))
      if (failed(divideLoad(call.getOperand(argument.getArgNumber()), call)))
        return failure();
    return success();
  }

  // Shrinks the variable from which `weight` is loaded to the experts of one rank.
  LogicalResult divideLoad(Value weight, Operation *reader) {
    auto load = weight.getDefiningOp<lm::LoadOp>();
    auto variable = load ? symbols.lookup<lm::VariableOp>(load.getVariable()) : lm::VariableOp();
    if (!variable)
      return reader->emitOpError("has a weight of experts that no lm.load reads");
    lm::VariableOp parameter = parameterOf(load, symbols);
    if (parameter.getGroups() == 1) {
      const RankedTensorType type = tensorTypeOf(parameter);
      for (auto state : module.getOps<lm::VariableOp>())
        if (state == parameter || state.getParameter() == parameter.getSymName()) {
          state.setType(resized(tensorTypeOf(state), 0, type.getDimSize(0) / ranks));
          state.setGroups(uint64_t(ranks));
        }
    }
    load.getResult().setType(tensorTypeOf(variable));
    return success();
  }

  // Gathers `value` from all ranks along `expert`. The all-gather has the location `name`. It
  // stands right behind the op that computes `value`, so that other ops can run beside it.
  Value exchanged(Value value, StringRef name) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(value);
    return createCollective<dist::AllGatherOp>(b, NameLoc::get(b.getStringAttr(name)), mesh,
                                               Axis::Expert, value);
  }

  // Returns the rank's position along `shard`: in a layer an argument, elsewhere a loaded scalar.
  Value rankIn(func::FuncOp function, RankedTensorType type) {
    Value &known = rankOf[function];
    if (known)
      return known;
    OpBuilder::InsertionGuard guard(b);
    auto load = [&] { return loadShardRank(b, mesh.getLoc(), mesh, symbols, type); };
    Block &body = function.getBody().front();
    if (!function.isPrivate()) {
      b.setInsertionPointToStart(&body);
      return known = load();
    }
    known = body.addArgument(type, function.getLoc());
    function.setType(FunctionType::get(module.getContext(), body.getArgumentTypes(),
                                       function.getFunctionType().getResults()));
    for (func::CallOp call : calls.lookup(function.getSymName())) {
      b.setInsertionPoint(call);
      call.getOperandsMutable().append(load());
    }
    return known;
  }

  ModuleOp module;
  SymbolTable symbols;
  OpBuilder b;
  dist::MeshOp mesh;
  const int64_t ranks;   // the number of ranks that divide the experts of a layer
  const double capacity; // rows of a window / (tokens of a rank * experts per token); 0: one window
  llvm::StringMap<SmallVector<func::CallOp>> calls; // key: name of the called function
  llvm::DenseMap<Operation *, Value> rankOf;        // the result of rankIn() for a function
};

struct ParallelExpertsPass : lmc::impl::ParallelExpertsPassBase<ParallelExpertsPass> {
  using ParallelExpertsPassBase::ParallelExpertsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (replicate < 1 || shard < 1 || experts < 1 || shard % experts != 0) {
      module.emitError("needs at least one rank along each axis, and experts that divide shard");
      return signalPassFailure();
    }
    OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
    auto mesh = dist::MeshOp::create(b, module.getLoc(), kMesh, uint64_t(replicate),
                                     uint64_t(shard), uint64_t(experts));
    if (capacity != 0 && capacity < 1) {
      module.emitError("needs a capacity of at least 1, or 0");
      return signalPassFailure();
    }
    if (experts > 1 && failed(ExpertDivider(module, mesh, capacity).run()))
      signalPassFailure();
  }
};
} // namespace
