// lm-apply-recompute: makes the backward pass recompute values instead of keeping them. Passes.td
// shows an example.
#include "passes/memory/Passes.h"

#include "dialects/lm/Lm.h"
#include "passes/memory/LayerHalves.h"
#include "passes/memory/RecomputeOptions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace lmc {
#define GEN_PASS_DEF_APPLYRECOMPUTEPASS
#include "passes/memory/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// The forward half of a layer, rewritten for one recompute option.
struct Variant {
  RecomputePlan plan;
  func::FuncOp forward;      // it returns fewer kept values
  SmallVector<int> newIndex; // for each old result, its new index; -1: dropped
  // Lists the kept values that recomputed ops read. Each pair has the index of the result by which
  // the new forward half returns the value, and the value in the old forward half.
  SmallVector<std::pair<unsigned, Value>> reads;
};

std::string variantName(func::FuncOp half, StringRef option) {
  return (half.getSymName() + "." + option).str();
}

// Returns the first op of `body` that reads one of `values`, or null.
Operation *firstReader(Block &body, ArrayRef<BlockArgument> values) {
  Operation *first = nullptr;
  for (Value value : values)
    for (Operation *user : value.getUsers())
      if (Operation *op = body.findAncestorOpInBlock(*user); !first || op->isBeforeInBlock(first))
        first = op;
  return first;
}

class Recomputer {
public:
  Recomputer(ModuleOp module, const RecomputeOptions &options)
      : module(module), symbols(module), options(options), b(module) {}

  LogicalResult run(ArrayRef<int64_t> choice) {
    for (auto function : module.getOps<func::FuncOp>())
      for (auto [layer, call] : llvm::enumerate(forwardCalls(function, symbols))) {
        const RecomputeKind &kind = options.kinds[size_t(options.layers[layer])];
        if (failed(rewrite(call, kind.options[size_t(choice[layer])])))
          return failure();
      }
    module.walk([&](func::CallOp call) {
      replaced.remove(symbols.lookup<func::FuncOp>(call.getCallee()));
    });
    for (func::FuncOp half : replaced)
      symbols.erase(half);
    return success();
  }

private:
  // Replaces the calls of a layer's forward half and of the backward half that reads its results.
  LogicalResult rewrite(func::CallOp forwardCall, const RecomputeOption &option) {
    auto forward = symbols.lookup<func::FuncOp>(forwardCall.getCallee());
    FailureOr<const Variant *> found = variantOf(forward, option);
    if (failed(found))
      return failure();
    const Variant &variant = **found;
    func::CallOp backwardCall = backwardCallOf(forwardCall, symbols);
    replaced.insert(forward);
    b.setInsertionPoint(forwardCall);
    auto lean = lm::createCallLike(b, forwardCall, variant.forward, forwardCall.getOperands());
    if (backwardCall) {
      SmallVector<int> resultOfArgument;
      SmallVector<Value> operands;
      for (Value operand : backwardCall.getOperands()) {
        auto result = dyn_cast<OpResult>(operand);
        bool saved = result && result.getOwner() == forwardCall.getOperation();
        resultOfArgument.push_back(saved ? int(result.getResultNumber()) : -1);
        if (!saved || variant.newIndex[result.getResultNumber()] >= 0)
          operands.push_back(operand);
      }
      auto backward = symbols.lookup<func::FuncOp>(backwardCall.getCallee());
      replaced.insert(backward);
      func::FuncOp copy = backwardVariant(backward, variant, variantName(backward, option.name),
                                          forward, resultOfArgument);
      for (unsigned argument : variant.plan.arguments)
        operands.push_back(forwardCall.getOperand(argument));
      for (auto [index, value] : variant.reads)
        operands.push_back(lean.getResult(index));
      b.setInsertionPoint(backwardCall);
      auto again = lm::createCallLike(b, backwardCall, copy, operands);
      backwardCall.replaceAllUsesWith(again.getResults());
      backwardCall.erase();
    }
    for (auto [index, kept] : llvm::enumerate(variant.newIndex))
      if (kept >= 0)
        forwardCall.getResult(unsigned(index)).replaceAllUsesWith(lean.getResult(unsigned(kept)));
    forwardCall.erase();
    return success();
  }

  FailureOr<const Variant *> variantOf(func::FuncOp forward, const RecomputeOption &option) {
    std::string name = variantName(forward, option.name);
    auto [it, inserted] = forwardVariants.try_emplace(name);
    Variant &variant = it->second;
    if (!inserted)
      return &variant;
    func::FuncOp layer = layerOf(forward, symbols);
    auto ops =
        llvm::to_vector(llvm::make_pointer_range(forward.getBody().front().without_terminator()));
    SmallVector<Operation *> chosen;
    for (int64_t index : option.recomputed) {
      if (index < 0 || index >= int64_t(ops.size()))
        return forward.emitError("has no op ")
               << index << ", which recompute option '" << option.name
               << "' names; run lm-analyze-recompute on the module as it is";
      if (!mayRecompute(ops[size_t(index)]))
        return ops[size_t(index)]->emitOpError("runs once only, but recompute option '")
               << option.name << "' runs it again; leave it out of the option";
      chosen.push_back(ops[size_t(index)]);
    }
    variant.plan = planRecompute(forward, layer.getNumResults(), chosen);
    const llvm::SetVector<Value> &kept = variant.plan.kept;
    auto indexOf = [&](Value value) { return unsigned(llvm::find(kept, value) - kept.begin()); };
    for (Value result : forward.getBody().front().getTerminator()->getOperands())
      variant.newIndex.push_back(kept.contains(result) ? int(indexOf(result)) : -1);
    llvm::SetVector<Value> reads;
    for (Operation *op : variant.plan.recomputed)
      for (Value operand : op->getOperands())
        if (!isa<BlockArgument>(operand) && kept.contains(operand) && reads.insert(operand))
          variant.reads.push_back({indexOf(operand), operand});

    b.setInsertionPointAfter(forward);
    IRMapping mapping;
    variant.forward = cast<func::FuncOp>(b.clone(*forward, mapping));
    variant.forward.setSymName(name);
    symbols.insert(variant.forward);
    Block &body = variant.forward.getBody().front();
    auto values = llvm::map_to_vector(kept, [&](Value value) { return mapping.lookup(value); });
    cast<func::ReturnOp>(body.getTerminator()).getOperandsMutable().assign(values);
    variant.forward.setFunctionType(
        b.getFunctionType(forward.getFunctionType().getInputs(), ValueRange(values).getTypes()));
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if (isOpTriviallyDead(&op))
        op.erase();
    return &variant;
  }

  // Returns a copy of `backward` that recomputes the values which the forward half no longer
  // returns. Argument i of `backward` gets the forward half's result resultOfArgument[i]; -1: none.
  func::FuncOp backwardVariant(func::FuncOp backward, const Variant &variant, StringRef name,
                               func::FuncOp forward, ArrayRef<int> resultOfArgument) {
    func::FuncOp &copy = backwardVariants[name];
    if (copy)
      return copy;
    copy = lm::cloneAs(b, backward, name, symbols);
    Block &body = copy.getBody().front();

    IRMapping mapping; // values of the forward half -> values of this function
    for (unsigned argument : variant.plan.arguments) {
      Value outer = forward.getArgument(argument);
      mapping.map(outer, body.addArgument(outer.getType(), outer.getLoc()));
    }
    for (auto [index, value] : variant.reads)
      mapping.map(value, body.addArgument(value.getType(), value.getLoc()));

    // Temporary arguments stand for the results of the recomputed ops until these are cloned.
    unsigned firstPlaceholder = body.getNumArguments();
    llvm::MapVector<Operation *, SmallVector<BlockArgument>> placeholders;
    for (Operation *op : variant.plan.recomputed)
      for (Value value : op->getResults()) {
        placeholders[op].push_back(body.addArgument(value.getType(), value.getLoc()));
        mapping.map(value, placeholders[op].back());
      }
    OperandRange returned = forward.getBody().front().getTerminator()->getOperands();
    llvm::BitVector dropped(body.getNumArguments());
    dropped.set(firstPlaceholder, body.getNumArguments());
    for (auto [argument, result] : llvm::enumerate(resultOfArgument)) {
      if (result < 0 || variant.newIndex[size_t(result)] >= 0)
        continue;
      body.getArgument(unsigned(argument))
          .replaceAllUsesWith(mapping.lookup(returned[unsigned(result)]));
      dropped.set(unsigned(argument));
    }
    // Each clone is inserted right before its first reader. So the last op must be cloned first.
    for (Operation *op : llvm::reverse(variant.plan.recomputed)) {
      Operation *reader = firstReader(body, placeholders[op]);
      if (!reader)
        continue;
      b.setInsertionPoint(reader);
      Operation *again = b.clone(*op, mapping);
      if (auto step = dyn_cast<StepOpInterface>(again))
        step.setBackward(true);
      for (auto [placeholder, result] : llvm::zip_equal(placeholders[op], again->getResults()))
        placeholder.replaceAllUsesWith(result);
      for (auto [value, placeholder] : llvm::zip_equal(op->getResults(), placeholders[op]))
        mapping.map(value, placeholder); // undoes the mapping that clone() added
    }
    body.eraseArguments(dropped);
    copy.setFunctionType(
        b.getFunctionType(body.getArgumentTypes(), backward.getFunctionType().getResults()));
    return copy;
  }

  ModuleOp module;
  SymbolTable symbols;
  const RecomputeOptions &options;
  OpBuilder b;
  llvm::StringMap<Variant> forwardVariants; // key: the name of the variant's function
  llvm::StringMap<func::FuncOp> backwardVariants;
  llvm::SetVector<func::FuncOp> replaced; // the halves whose calls were replaced
};

struct ApplyRecomputePass : lmc::impl::ApplyRecomputePassBase<ApplyRecomputePass> {
  using ApplyRecomputePassBase::ApplyRecomputePassBase;

  // Returns the recompute options from the module's attribute. If the module has no such attribute,
  // computes the options. But if the module has a choice of options, whose numbers refer to the
  // attribute, a missing attribute is an error.
  FailureOr<RecomputeOptions> findOptions(bool choiceGiven) {
    ModuleOp module = getOperation();
    if (choiceGiven || hasRecomputeOptions(module))
      return readRecomputeOptions(module);
    return analyzeRecompute(module, [](Operation *op) { return modelledSeconds(op); });
  }

  LogicalResult apply() {
    ModuleOp module = getOperation();
    FailureOr<std::optional<std::vector<int64_t>>> given = readRecomputeChoice(module);
    if (failed(given))
      return failure();
    StringRef name = *given ? StringRef("auto") : StringRef(mode.getValue());
    if (!*given && name != kKeepAll && !llvm::is_contained(kRecomputeModes, name))
      return module.emitError("has no recompute mode '")
             << name << "'; choose " << llvm::join(ArrayRef(kRecomputeModes), ", ") << " or "
             << kKeepAll;
    if (stride < 1)
      return module.emitError("needs a recompute stride of at least 1, got ") << int64_t(stride);
    module->setAttr("lm.recompute", StringAttr::get(&getContext(), name));
    if (name == kKeepAll)
      return success();

    SymbolTable symbols(module);
    FailureOr<SmallVector<func::FuncOp>> layers = layersInOrder(module, symbols);
    if (failed(layers))
      return failure();
    FailureOr<RecomputeOptions> options = findOptions(given->has_value());
    if (failed(options))
      return failure();
    bool areTheirs = layers->size() == options->layers.size();
    for (size_t layer = 0; areTheirs && layer < layers->size(); ++layer)
      areTheirs = options->kinds[size_t(options->layers[layer])].layer ==
                  layerOf((*layers)[layer], symbols).getSymName();
    if (!areTheirs)
      return module.emitError("has recompute options for other layers than it calls; run "
                              "lm-analyze-recompute on the module as it is");
    FailureOr<std::vector<int64_t>> choice =
        *given ? **given : options->choiceOf(module, name, stride);
    if (failed(choice) || failed(options->check(module, *choice)))
      return failure();
    return Recomputer(module, *options).run(*choice);
  }

  void runOnOperation() override {
    if (failed(apply()))
      signalPassFailure();
  }
};
} // namespace
