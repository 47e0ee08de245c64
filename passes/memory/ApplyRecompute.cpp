// lm-apply-recompute: less is kept for the backward pass, which computes it again.
//
//   %y, %act = call @layer.forward(%x, %w)
//   %dx, %dw = call @layer.backward(%dy, %act, %w)
//   =>
//   %y       = call @layer.forward.recompute(%x, %w)
//   %dx, %dw = call @layer.backward.recompute(%dy, %w, %x, %w)    which begins by making %act
#include "passes/memory/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_APPLYRECOMPUTEPASS
#include "passes/memory/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// What becomes of a layer's forward half: which results it keeps, and what the backward
// half must run again to have the others.
struct Choice {
  func::FuncOp forward;                      // keeps less
  SmallVector<int> keptIndex;                // old result -> new result, -1: dropped
  llvm::SetVector<Operation *> recomputed;   // ops of the old forward half, in order
  SmallVector<unsigned> arguments;           // of the forward half, read by those ops
  // Values of the forward half that those ops read besides: its new result number, and it.
  SmallVector<std::pair<unsigned, Value>> addedValues;
};

class Recomputer {
public:
  Recomputer(ModuleOp module, StringRef mode) : symbols(module), mode(mode), b(module) {}

  void rewrite(func::CallOp forwardCall);

private:
  bool isRecomputed(Operation *op) const;
  const Choice &choose(func::FuncOp forward, unsigned layerResults);
  func::FuncOp backwardVariant(func::FuncOp backward, const Choice &choice, func::FuncOp forward,
                               ArrayRef<int> resultOfArgument);

  SymbolTable symbols;
  StringRef mode;
  OpBuilder b;
  llvm::StringMap<Choice> choices;
  llvm::StringMap<func::FuncOp> variants;
};

} // namespace

bool Recomputer::isRecomputed(Operation *op) const {
  if (mode == "block")
    return true;
  if (isa<lm::SwigluOp>(op))
    return true;
  return mode == "full" && isa<lm::LinearOp>(op) &&
         llvm::any_of(op->getUsers(), [](Operation *user) { return isa<lm::SwigluOp>(user); });
}

// The first `layerResults` results are the layer's own and stay.
const Choice &Recomputer::choose(func::FuncOp forward, unsigned layerResults) {
  auto [it, inserted] = choices.try_emplace(forward.getSymName());
  Choice &choice = it->second;
  if (!inserted)
    return choice;
  auto ret = cast<func::ReturnOp>(forward.getBody().front().getTerminator());
  llvm::SetVector<Value> kept;
  llvm::SetVector<Value> wanted; // values that the backward half must make
  for (OpOperand &result : ret->getOpOperands()) {
    bool own = result.getOperandNumber() < layerResults;
    Operation *producer = result.get().getDefiningOp();
    if (own || !producer || !isRecomputed(producer)) {
      kept.insert(result.get());
      choice.keptIndex.push_back(int(llvm::find(kept, result.get()) - kept.begin()));
    } else {
      choice.keptIndex.push_back(-1);
      wanted.insert(result.get());
    }
  }
  // Everything that making the wanted values takes.
  llvm::SetVector<Operation *> needed;
  llvm::SetVector<unsigned> arguments;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Operation *producer = wanted[i].getDefiningOp();
    needed.insert(producer);
    for (Value operand : producer->getOperands()) {
      if (auto argument = dyn_cast<BlockArgument>(operand))
        arguments.insert(argument.getArgNumber());
      else if (isRecomputed(operand.getDefiningOp()))
        wanted.insert(operand);
      else {
        kept.insert(operand);
        choice.addedValues.push_back({unsigned(llvm::find(kept, operand) - kept.begin()), operand});
      }
    }
  }
  for (Operation &op : forward.getBody().front())
    if (needed.contains(&op))
      choice.recomputed.insert(&op);
  choice.arguments.append(arguments.begin(), arguments.end());

  b.setInsertionPointAfter(forward);
  IRMapping mapping;
  choice.forward = cast<func::FuncOp>(b.clone(*forward, mapping));
  choice.forward.setSymName((forward.getSymName() + ".recompute").str());
  symbols.insert(choice.forward);
  auto keptReturn = cast<func::ReturnOp>(choice.forward.getBody().front().getTerminator());
  SmallVector<Value> values;
  for (Value value : kept)
    values.push_back(mapping.lookup(value));
  keptReturn.getOperandsMutable().assign(values);
  SmallVector<Type> types(keptReturn.getOperandTypes());
  choice.forward.setFunctionType(
      b.getFunctionType(forward.getFunctionType().getInputs(), types));
  // Ops whose results nobody needs any more.
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(choice.forward.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  return choice;
}

// A copy of `backward` that makes the dropped values itself. `resultOfArgument` says
// which of the forward half's results each of its arguments is (-1: none).
func::FuncOp Recomputer::backwardVariant(func::FuncOp backward, const Choice &choice,
                                         func::FuncOp forward, ArrayRef<int> resultOfArgument) {
  func::FuncOp &variant = variants[backward.getSymName()];
  if (variant)
    return variant;
  b.setInsertionPointAfter(backward);
  variant = cast<func::FuncOp>(b.clone(*backward));
  variant.setSymName((backward.getSymName() + ".recompute").str());
  symbols.insert(variant);
  Block &body = variant.getBody().front();

  IRMapping mapping; // the forward half's values, as this function has them
  for (unsigned argument : choice.arguments) {
    Value outer = forward.getArgument(argument);
    mapping.map(outer, body.addArgument(outer.getType(), outer.getLoc()));
  }
  for (auto [index, value] : choice.addedValues)
    if (!mapping.contains(value))
      mapping.map(value, body.addArgument(value.getType(), value.getLoc()));
  b.setInsertionPointToStart(&body);
  for (Operation *op : choice.recomputed)
    b.clone(*op, mapping)->setDiscardableAttr("lm.backward", b.getUnitAttr());

  auto ret = cast<func::ReturnOp>(forward.getBody().front().getTerminator());
  llvm::BitVector dropped(body.getNumArguments());
  for (auto [argument, result] : llvm::enumerate(resultOfArgument)) {
    if (result < 0 || choice.keptIndex[size_t(result)] >= 0)
      continue;
    body.getArgument(unsigned(argument))
        .replaceAllUsesWith(mapping.lookup(ret.getOperand(unsigned(result))));
    dropped.set(unsigned(argument));
  }
  body.eraseArguments(dropped);
  SmallVector<Type> inputs(body.getArgumentTypes());
  variant.setFunctionType(
      b.getFunctionType(inputs, backward.getFunctionType().getResults()));
  return variant;
}

// Replaces one layer's forward call and the backward call that reads its results.
void Recomputer::rewrite(func::CallOp forwardCall) {
  auto forward = symbols.lookup<func::FuncOp>(forwardCall.getCallee());
  StringRef layerName = forward.getSymName().drop_back(StringRef(".forward").size());
  auto layer = symbols.lookup<func::FuncOp>(layerName);
  unsigned layerResults = layer.getNumResults();
  const Choice &choice = choose(forward, layerResults);

  func::CallOp backwardCall;
  for (OpResult result : forwardCall->getResults().drop_front(layerResults))
    for (Operation *user : result.getUsers())
      if (auto call = dyn_cast<func::CallOp>(user);
          call && call.getCallee().starts_with((layerName + ".backward").str()))
        backwardCall = call;
  b.setInsertionPoint(forwardCall);
  auto lean = func::CallOp::create(b, forwardCall.getLoc(), choice.forward,
                                   forwardCall.getOperands());
  if (backwardCall) {
    SmallVector<int> resultOfArgument;
    SmallVector<Value> operands;
    for (Value operand : backwardCall.getOperands()) {
      auto result = dyn_cast<OpResult>(operand);
      bool saved = result && result.getOwner() == forwardCall.getOperation();
      resultOfArgument.push_back(saved ? int(result.getResultNumber()) : -1);
      if (!saved || choice.keptIndex[result.getResultNumber()] >= 0)
        operands.push_back(operand);
    }
    auto backward = symbols.lookup<func::FuncOp>(backwardCall.getCallee());
    func::FuncOp variant = backwardVariant(backward, choice, forward, resultOfArgument);
    for (unsigned argument : choice.arguments)
      operands.push_back(forwardCall.getOperand(argument));
    llvm::SmallDenseSet<Value> given;
    for (auto [index, value] : choice.addedValues)
      if (given.insert(value).second)
        operands.push_back(lean.getResult(index));
    b.setInsertionPoint(backwardCall);
    auto again = func::CallOp::create(b, backwardCall.getLoc(), variant, operands);
    backwardCall.replaceAllUsesWith(again.getResults());
    backwardCall.erase();
  }
  for (auto [index, kept] : llvm::enumerate(choice.keptIndex))
    if (kept >= 0)
      forwardCall.getResult(unsigned(index)).replaceAllUsesWith(lean.getResult(unsigned(kept)));
  forwardCall.erase();
}

namespace {
struct ApplyRecomputePass : lmc::impl::ApplyRecomputePassBase<ApplyRecomputePass> {
  using ApplyRecomputePassBase::ApplyRecomputePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mode != "none" && mode != "activation" && mode != "full" && mode != "block") {
      module.emitError("has no recompute mode '")
          << mode.getValue() << "'; choose none, activation, full or block";
      return signalPassFailure();
    }
    if (stride < 1) {
      module.emitError("needs a recompute stride of at least 1, got ") << int64_t(stride);
      return signalPassFailure();
    }
    module->setAttr("lm.recompute", StringAttr::get(&getContext(), mode.getValue()));
    if (mode == "none")
      return;
    Recomputer recomputer(module, mode.getValue());
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isPrivate())
        continue;
      SmallVector<func::CallOp> calls;
      for (auto call : function.getBody().front().getOps<func::CallOp>())
        if (call.getCallee().ends_with(".forward"))
          calls.push_back(call);
      for (auto [layer, call] : llvm::enumerate(calls))
        if (int64_t(layer) % stride == 0)
          recomputer.rewrite(call);
    }
  }
};
} // namespace
