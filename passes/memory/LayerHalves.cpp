#include "passes/memory/LayerHalves.h"

#include "passes/memory/OpCost.h"

using namespace mlir;
using namespace lmc;

static constexpr StringRef kForward = ".forward", kBackward = ".backward";

func::FuncOp lmc::layerOf(func::FuncOp forward, const SymbolTable &symbols) {
  StringRef name = forward ? forward.getSymName() : StringRef();
  if (!name.consume_back(kForward))
    return {};
  return symbols.lookup<func::FuncOp>(name);
}

SmallVector<func::CallOp> lmc::forwardCalls(func::FuncOp function, const SymbolTable &symbols) {
  SmallVector<func::CallOp> calls;
  if (!function.isExternal())
    for (auto call : function.getBody().front().getOps<func::CallOp>())
      if (layerOf(symbols.lookup<func::FuncOp>(call.getCallee()), symbols))
        calls.push_back(call);
  return calls;
}

func::CallOp lmc::backwardCallOf(func::CallOp forwardCall, const SymbolTable &symbols) {
  StringRef name = forwardCall.getCallee().drop_back(kForward.size());
  unsigned layerResults = symbols.lookup<func::FuncOp>(name).getNumResults();
  std::string backward = (name + kBackward).str();
  for (OpResult result : forwardCall->getResults().drop_front(layerResults))
    for (Operation *user : result.getUsers())
      if (auto call = dyn_cast<func::CallOp>(user);
          call && (call.getCallee() == backward || call.getCallee().starts_with(backward + ".")))
        return call;
  return {};
}

FailureOr<SmallVector<func::FuncOp>> lmc::layersInOrder(ModuleOp module,
                                                        const SymbolTable &symbols) {
  SmallVector<func::FuncOp> layers;
  func::FuncOp first;
  for (auto function : module.getOps<func::FuncOp>()) {
    SmallVector<func::FuncOp> called;
    for (func::CallOp call : forwardCalls(function, symbols))
      called.push_back(symbols.lookup<func::FuncOp>(call.getCallee()));
    for (func::FuncOp forward : called)
      if (forward.isExternal() ||
          forward.getNumResults() < layerOf(forward, symbols).getNumResults())
        return forward.emitError("is not the forward half of @")
               << layerOf(forward, symbols).getSymName()
               << ": it needs a body that returns the layer's results first; lm-autodiff makes it";
    if (called.empty())
      continue;
    if (!first) {
      first = function;
      layers = std::move(called);
    } else if (called != layers) {
      return function.emitError("calls other layers than @")
             << first.getSymName()
             << "; recompute is decided per layer, so all micro-steps must call the same "
                "forward halves in the same order";
    }
  }
  return layers;
}

Value lmc::viewedValue(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

RecomputePlan lmc::planRecompute(func::FuncOp forward, unsigned layerResults,
                                 ArrayRef<Operation *> chosen) {
  Block &body = forward.getBody().front();
  llvm::SmallPtrSet<Operation *, 16> inSet(chosen.begin(), chosen.end());
  RecomputePlan plan;
  OperandRange returned = body.getTerminator()->getOperands();
  llvm::SmallPtrSet<Value, 2> own;
  for (Value result : returned.take_front(layerResults)) {
    plan.kept.insert(result);
    own.insert(viewedValue(result));
  }
  auto isRemade = [&](Value value) {
    Value viewed = viewedValue(value);
    return inSet.contains(viewed.getDefiningOp()) && !own.contains(viewed);
  };
  llvm::SetVector<Value> wanted;
  for (Value value : returned.drop_front(layerResults))
    (isRemade(value) ? wanted : plan.kept).insert(value);
  llvm::SmallPtrSet<Operation *, 16> needed;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Operation *producer = wanted[i].getDefiningOp();
    if (!needed.insert(producer).second)
      continue;
    for (Value operand : producer->getOperands()) {
      if (auto argument = dyn_cast<BlockArgument>(operand))
        plan.arguments.insert(argument.getArgNumber());
      else
        (isRemade(operand) ? wanted : plan.kept).insert(operand);
    }
  }
  for (Operation &op : body)
    if (needed.contains(&op))
      plan.recomputed.insert(&op);
  return plan;
}

uint64_t lmc::keptBytes(func::FuncOp forward, unsigned layerResults, const RecomputePlan &plan) {
  llvm::SetVector<Value> held;
  for (Value value : plan.kept)
    if (Value viewed = viewedValue(value); !isa<BlockArgument>(viewed))
      held.insert(viewed);
  OperandRange returned = forward.getBody().front().getTerminator()->getOperands();
  for (Value result : returned.take_front(layerResults))
    held.remove(viewedValue(result));
  uint64_t bytes = 0;
  for (Value value : held)
    bytes += bytesOf(value);
  return bytes;
}
