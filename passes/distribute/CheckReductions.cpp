// dist-check-reductions: checks sums over ranks. If each rank computes only a summand of a value,
// the value must be summed over ranks exactly once before its use. Passes.td lists these values.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/StringSet.h"

#include <set>

namespace lmc {
#define GEN_PASS_DEF_CHECKREDUCTIONSPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using dist::Axis;

namespace {

class ReductionChecker {
public:
  ReductionChecker(ModuleOp module, dist::MeshOp mesh)
      : module(module), symbols(module), mesh(mesh) {}

  LogicalResult run() {
    if (module->hasAttr(kUnitsToReduce))
      return module.emitError("has gradients that are not summed over ranks; run "
                              "dist-reduce-gradients first");
    auto optimizer = symbols.lookup<func::FuncOp>(names::kOptimizer);
    if (!optimizer)
      return success();
    if (failed(checkGradients(optimizer)) || failed(checkStores(names::kOptimizer, names::kLoss)) ||
        failed(checkStores(names::kEval, names::kEvalLoss)))
      return failure();
    if (mesh.ranksAlong(Axis::Shard) > 1)
      for (Operation &op : optimizer.getBody().front())
        if (isa<lm::GlobalNormOp, lm::NormOfPartsOp>(op) && failed(checkNorm(&op)))
          return failure();
    return success();
  }

private:
  using Axes = std::set<Axis>;

  // Checks the gradients that the optimizer reads. The last micro-step's function stores them.
  LogicalResult checkGradients(func::FuncOp optimizer) {
    llvm::StringSet<> read;
    for (auto load : optimizer.getBody().front().getOps<lm::LoadOp>())
      read.insert(load.getVariable());
    const StringRef last =
        symbols.lookup(names::kMicroLast) ? names::kMicroLast : names::kMicroFirst;
    llvm::StringSet<> stored;
    if (auto function = symbols.lookup<func::FuncOp>(last))
      for (auto store : function.getBody().front().getOps<lm::StoreOp>())
        stored.insert(store.getVariable());
    for (auto variable : module.getOps<lm::VariableOp>()) {
      const StringRef name = variable.getSymName();
      if (variable.getKind() != lm::VariableKind::Gradient || variable.getAnonymous() ||
          !(read.contains(name) || read.contains(variable.getStorage().value_or(""))))
        continue;
      if (!stored.contains(name))
        return variable.emitOpError("is a gradient that the optimizer reads, and @")
               << last << " stores nothing to it";
      if (failed(checkStores(last, name)))
        return failure();
    }
    return success();
  }

  // Checks what `function` stores to `variable`, which is later summed over the axes `summed`.
  LogicalResult checkStores(StringRef function, StringRef variable, const Axes &summed = {}) {
    if (!checked.insert({function, variable, summed}).second)
      return success();
    if (auto known = symbols.lookup<func::FuncOp>(function))
      for (auto store : known.getBody().front().getOps<lm::StoreOp>())
        if (store.getVariable() == variable && failed(checkSum(store.getValue(), summed, store)))
          return failure();
    return success();
  }

  // Checks that the value of `store` is summed over every axis exactly once. Between `value` and
  // the store, sums over the axes `summed` have been found already.
  LogicalResult checkSum(Value value, Axes summed, lm::StoreOp store) {
    Operation *op = value.getDefiningOp();
    std::optional<Axis> axis;
    if (auto sum = dyn_cast_or_null<dist::AllReduceOp>(op))
      axis = sum.getAxis();
    else if (auto sum = dyn_cast_or_null<dist::ReduceScatterOp>(op))
      axis = sum.getAxis();
    if (axis && !summed.insert(*axis).second)
      return store.emitOpError("stores to @")
             << store.getVariable() << " what is summed more than once over the axis "
             << dist::stringifyAxis(*axis);
    const Axes all = allAxes(store.getVariable());
    const auto missing = llvm::find_if(all, [&](Axis each) { return !summed.contains(each); });
    if (auto load = dyn_cast_or_null<lm::LoadOp>(op)) {
      auto variable = symbols.lookup<lm::VariableOp>(load.getVariable());
      if (variable.getKind() == lm::VariableKind::Table) // a unit's padding: zeros on each rank
        return success();
      // The variable also holds the sum of earlier micro-steps, whose stores are checked, too.
      if (variable.getKind() == lm::VariableKind::Gradient &&
          (missing == all.end() || variable.getSymName() == store.getVariable()))
        return failure(failed(checkStores(names::kMicroFirst, load.getVariable(), summed)) ||
                       failed(checkStores(names::kMicro, load.getVariable(), summed)));
    }
    if (auto cast = dyn_cast_or_null<lm::ScaledCastOp>(op))
      return failure(failed(checkScale(cast)) || failed(checkSum(cast.getX(), summed, store)));
    if (axis || (op && (isa<lm::AddOp, lm::CastOp>(op) || movesElements(op)))) {
      for (Value operand : op->getOperands())
        if (failed(checkSum(operand, summed, store)))
          return failure();
      return success();
    }
    if (missing == all.end())
      return success();
    return store.emitOpError("stores to @")
           << store.getVariable() << " what is not summed over the axis "
           << dist::stringifyAxis(*missing);
  }

  // Checks that the scale is computed from the maximum over all ranks.
  LogicalResult checkScale(lm::ScaledCastOp cast) {
    Axes missing = allAxes();
    for (Operation *op = cast.getMax().getDefiningOp();
         op && (movesElements(op) || isa<lm::MaxAbsOp, dist::AllGatherOp>(op));
         op = op->getOperand(0).getDefiningOp())
      if (auto gather = dyn_cast<dist::AllGatherOp>(op))
        missing.erase(gather.getAxis());
    if (missing.empty())
      return success();
    return cast.emitOpError("has a scale that ranks along the axis ")
           << dist::stringifyAxis(*missing.begin()) << " do not share";
  }

  // Checks that each reader of `norm`, a norm over one rank's pieces, combines all ranks' norms.
  LogicalResult checkNorm(Operation *norm) {
    auto isJoined = [](Value operand) {
      while (operand.getDefiningOp() && movesElements(operand.getDefiningOp()))
        operand = operand.getDefiningOp()->getOperand(0);
      return bool(operand.getDefiningOp<dist::AllGatherOp>());
    };
    if (llvm::all_of(norm->getOperands(), isJoined))
      return success();
    SmallVector<Operation *> users(norm->getUsers());
    while (!users.empty()) {
      Operation *user = users.pop_back_val();
      if (movesElements(user))
        llvm::append_range(users, user->getUsers());
      else if (!isa<dist::AllGatherOp>(user))
        return norm->emitOpError("is of a rank's own piece, and '")
               << user->getName() << "' reads it without the norms of the other ranks";
    }
    return success();
  }

  // Returns the axes over which the value of a variable must be summed. `expert` is none of these
  // axes, because ranks along it have different experts.
  Axes allAxes(StringRef variable = "") {
    auto known = symbols.lookup<lm::VariableOp>(variable);
    const Axis shard = known && known.getGroups() > 1 ? Axis::ExpertShard : Axis::Shard;
    Axes axes;
    for (Axis axis : {Axis::Replicate, shard})
      if (mesh.ranksAlong(axis) > 1)
        axes.insert(axis);
    return axes;
  }

  ModuleOp module;
  SymbolTable symbols;
  dist::MeshOp mesh;
  std::set<std::tuple<StringRef, StringRef, Axes>> checked; // arguments of past checkStores() calls
};

struct CheckReductionsPass : lmc::impl::CheckReductionsPassBase<CheckReductionsPass> {
  void runOnOperation() override {
    auto mesh = SymbolTable(getOperation()).lookup<dist::MeshOp>(kMesh);
    if (!mesh) {
      getOperation().emitOpError("has no mesh; run dist-shard-state first");
      return signalPassFailure();
    }
    if (mesh.ranksAlong(Axis::Shard) * mesh.ranksAlong(Axis::Replicate) > 1 &&
        failed(ReductionChecker(getOperation(), mesh).run()))
      signalPassFailure();
  }
};
} // namespace
