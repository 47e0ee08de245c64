// dist-overlap: lets collectives run at the same time as ops that do not need their results.
// Passes.td shows an example.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_OVERLAPPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// A chain of collectives. Each collective is the only reader of the result of the one before it.
// Examples: the reduce-scatter and then the all-reduce of a gradient, or a single all-gather.
struct Chain {
  SmallVector<Operation *, 2> ops;
  SetVector<Operation *> dependents; // for a sum of gradients: the ops that need the result

  Operation *first() const { return ops.front(); }
  Operation *last() const { return ops.back(); }
  Value result() const { return ops.back()->getResult(0); }
};

// A group is a list of consecutive chains. Each op that computes, and stands between two chains of
// the group, needs the result of an earlier chain.
using Group = SmallVector<Chain, 1>;

// Returns true if the op becomes a command that may run at the same time as a collective.
bool computes(Operation *op) {
  return isa<CommandOpInterface>(op) && !dist::isCollective(op) && !isa<dist::WaitOp>(op);
}

// Returns the first op between `op` and `end` that computes, or `end` if there is none.
Operation *nextThatComputes(Operation *op, Operation *end) {
  do
    op = op->getNextNode();
  while (op != end && !computes(op));
  return op;
}

// Collects the ops that need `value`, directly or through other ops. Fails if one of them is a
// collective or ends the function.
LogicalResult collectDependents(Value value, SetVector<Operation *> &all) {
  for (Operation *user : value.getUsers()) {
    if (dist::isCollective(user) || user->hasTrait<OpTrait::IsTerminator>())
      return failure();
    if (!all.insert(user))
      continue;
    for (Value result : user->getResults())
      if (failed(collectDependents(result, all)))
        return failure();
  }
  return success();
}

// Returns true if `ops` have no other operands than `given`, results of `ops`, loaded variables,
// empty tensors, and scalars computed before `first`, such as the scale of gradients in f16.
bool needNothingElse(const SetVector<Operation *> &ops, Value given, Operation *first) {
  return llvm::all_of(ops, [&](Operation *op) {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *source = operand.getDefiningOp();
      return operand == given || ops.contains(source) ||
             isa_and_nonnull<lm::LoadOp, tensor::EmptyOp>(source) ||
             (source && cast<RankedTensorType>(operand.getType()).getRank() == 0 &&
              source->isBeforeInBlock(first));
    });
  });
}

class Overlapper {
public:
  explicit Overlapper(func::FuncOp function) : body(function.getBody().front()) {}

  // Moves the all-gathers of weights up: group n starts behind the start of group n - `distance`.
  void prefetch(int64_t distance) {
    SmallVector<Group> all = groups([](Operation *op) -> std::optional<Chain> {
      auto gather = dyn_cast<dist::AllGatherOp>(op);
      if (!gather || !gather.getInput().getDefiningOp<lm::LoadOp>())
        return std::nullopt;
      return Chain{{op}, {}};
    });
    // places[n] is the first op that computes after the start of group n.
    SmallVector<Operation *> places;
    for (const Group &group : all)
      places.push_back(nextThatComputes(group.back().first(), body.getTerminator()));
    for (auto [number, group] : llvm::enumerate(all))
      for (const Chain &chain : group) {
        if (usesOf(chain.result()).readers.empty())
          continue;
        if (number > 0) {
          Operation *place = places[number > size_t(distance) ? number - size_t(distance) : 0];
          if (Operation *load = chain.first()->getOperand(0).getDefiningOp();
              place->isBeforeInBlock(load))
            load->moveBefore(place);
          chain.first()->moveBefore(place);
        }
        overlapUntilRead(chain);
      }
  }

  // Delays the waits for sums of gradients: the wait for group n comes after the start of group n +
  // `distance`. The ops that add a sum to earlier micro-steps' gradients move with the wait.
  void delay(int64_t distance) {
    SmallVector<Group> all = groups([](Operation *op) -> std::optional<Chain> {
      if (!isBackward(op) || !isa<dist::ReduceScatterOp, dist::AllReduceOp>(op) ||
          op->getOperand(0).getDefiningOp<dist::ReduceScatterOp>())
        return std::nullopt;
      Chain chain{{op}, {}};
      Operation *user = op->hasOneUse() ? *op->user_begin() : nullptr;
      if (isa_and_nonnull<dist::AllReduceOp>(user))
        chain.ops.push_back(user);
      if (failed(collectDependents(chain.result(), chain.dependents)) ||
          !needNothingElse(chain.dependents, chain.result(), chain.first()))
        return std::nullopt;
      return chain;
    });
    for (auto [number, group] : llvm::enumerate(all)) {
      const size_t next = number + size_t(distance);
      Operation *until =
          next < all.size() ? all[next].back().last()->getNextNode() : body.getTerminator();
      for (const Chain &chain : group) {
        SmallVector<Operation *> ordered(chain.dependents.getArrayRef());
        llvm::erase_if(ordered, [&](Operation *op) { return until->isBeforeInBlock(op); });
        llvm::sort(ordered, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
        overlap(chain, until, ordered);
      }
    }
  }

  // Overlaps each exchange along `expert` with the ops before the first reader of its result.
  void exchange() {
    SmallVector<Operation *> exchanges;
    for (Operation &op : body)
      if (dist::isExchange(&op) && !dist::isAsync(&op))
        exchanges.push_back(&op);
    for (Operation *op : exchanges)
      overlapUntilRead(Chain{{op}, {}});
  }

  unsigned numAsync = 0;

private:
  // Calls `startsChain` for each op, in order, and groups the chains that it returns.
  SmallVector<Group> groups(llvm::function_ref<std::optional<Chain>(Operation *)> startsChain) {
    SmallVector<Group> all;
    llvm::DenseSet<Operation *> dependents; // ops that need the result of a chain found so far
    bool isApart = true;
    for (Operation &op : body) {
      isApart |= computes(&op) && !dependents.contains(&op);
      std::optional<Chain> chain = startsChain(&op);
      if (!chain)
        continue;
      dependents.insert_range(chain->dependents);
      if (isApart)
        all.emplace_back();
      all.back().push_back(std::move(*chain));
      isApart = false;
    }
    return all;
  }

  // Makes the chain run at the same time as the ops behind it. Inserts a wait before `until`, and
  // moves `dependents` (the ops before `until` that need the chain's result, in order) behind the
  // wait. Does nothing if no other op before `until` computes anything.
  void overlap(const Chain &chain, Operation *until, ArrayRef<Operation *> dependents) {
    Operation *last = chain.last();
    Operation *next = last;
    do
      next = nextThatComputes(next, until);
    while (next != until && llvm::is_contained(dependents, next));
    if (next == until)
      return;
    OpBuilder b(until);
    SmallVector<Value, 1> inputs;
    if (!isa<dist::AllReduceOp>(chain.first()))
      inputs.push_back(chain.first()->getOperand(0));
    Value started = chain.result();
    auto wait = dist::WaitOp::create(b, last->getLoc(), started.getType(), started, inputs);
    setStep(wait, last);
    started.replaceAllUsesExcept(wait.getResult(), wait);
    for (Operation *dependent : dependents)
      dependent->moveBefore(until);
    for (Operation *op : chain.ops)
      op->setAttr("async", b.getUnitAttr());
    numAsync += unsigned(chain.ops.size());
  }

  // Makes the chain run at the same time as the ops before the first reader of its result.
  void overlapUntilRead(const Chain &chain) {
    auto [views, readers] = usesOf(chain.result());
    if (readers.empty())
      return;
    Operation *first = readers.front();
    llvm::erase_if(views, [&](Operation *view) { return first->isBeforeInBlock(view); });
    overlap(chain, first, views);
  }

  Block &body;
};

struct OverlapPass : lmc::impl::OverlapPassBase<OverlapPass> {
  using OverlapPassBase::OverlapPassBase;

  void runOnOperation() override {
    if (gathers < 0 || reductions < 0) {
      getOperation().emitError("needs distances of at least 0, not ")
          << gathers.getValue() << " and " << reductions.getValue();
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isPrivate() || function.isExternal())
        continue;
      Overlapper overlapper(function);
      if (gathers > 0)
        overlapper.prefetch(gathers);
      if (reductions > 0)
        overlapper.delay(reductions);
      if (gathers > 0)
        overlapper.exchange();
      numAsync += overlapper.numAsync;
    }
  }
};
} // namespace
