// lm-autodiff: reverse-mode differentiation of @forward. Passes.td shows an example.
//
// The pass copies a function and appends the VJPs (vector-Jacobian products) of its ops, from the
// last op to the first. It then cuts this joint graph into a forward and a backward half. The
// forward half also returns every value that the backward half reads.
#include "passes/autodiff/Passes.h"

#include "dialects/interfaces/Differentiable.h"
#include "dialects/lm/Lm.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVectorExtras.h"

namespace lmc {
#define GEN_PASS_DEF_AUTODIFFPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// The scalar that holds the cotangent of the loss, from which the backward pass starts.
static constexpr StringRef kLossScale = "run.loss_scale";

namespace {

// The forward and the backward half of a function, and the values that pass between them.
struct Halves {
  func::FuncOp forward;  // (args) -> results, saved
  func::FuncOp backward; // maps (cotangents of results, saved, args that it reads) to gradients
  SmallVector<bool> hasGradient;           // true if the function's i-th result has a gradient
  SmallVector<unsigned> readArguments;     // arguments of `forward` that `backward` reads
  SmallVector<int> gradientOfArgument;     // per argument: index in `backward`'s results; -1: none
};

// Adds up the contributions to the cotangent of each value.
class Cotangents {
public:
  explicit Cotangents(OpBuilder &builder) : b(builder) {}

  Value get(Value value) const { return sums.lookup(value); }

  void add(Value value, Value contribution) {
    if (!contribution)
      return;
    Value &sum = sums[value];
    // The gradient op of a window of rows adds its contribution to the earlier windows' sum.
    if (auto grad = contribution.getDefiningOp<lm::ExpertLinearGradOp>();
        sum && grad && !grad.getAcc()) {
      grad.setAccumulator(sum);
      sum = contribution;
      return;
    }
    sum = sum ? Value(lm::AddOp::create(b, contribution.getLoc(), sum, contribution))
              : contribution;
  }

private:
  OpBuilder &b;
  llvm::DenseMap<Value, Value> sums;
};

void markBackward(Operation *first, Operation *end) {
  for (Operation *op = first; op != end; op = op->getNextNode())
    if (auto step = dyn_cast<StepOpInterface>(op))
      step.setBackward(true);
}

// Returns false if `value` has no cotangent, like a step function, whose gradient is 0.
bool hasGradient(Value value) {
  auto op = value.getDefiningOp<DifferentiableOpInterface>();
  return !op || op.hasGradient(cast<OpResult>(value).getResultNumber());
}

class Differentiator {
public:
  explicit Differentiator(ModuleOp module)
      : module(module), symbols(module), state(module), b(module) {}

  LogicalResult run() {
    auto forward = symbols.lookup<func::FuncOp>("forward");
    if (!forward || forward.isExternal() || forward.getNumResults() != 1 ||
        forward.getNumArguments() != 0)
      return module.emitOpError("needs a function @forward without arguments and with one result, "
                                "the loss");
    auto lossType = cast<RankedTensorType>(forward.getResultTypes()[0]);

    b.setInsertionPoint(forward);
    declareScalar(kLossScale, lossType, lm::StepValue::LossScale);
    declareScalar(names::kLoss, lossType);
    declareScalar(names::kEvalLoss, lossType);

    func::FuncOp micro = lm::cloneAs(b, forward, names::kMicro, symbols);
    Block &body = micro.getBody().front();
    auto ret = cast<func::ReturnOp>(body.getTerminator());
    SmallVector<Operation *> forwardOps;
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator())) {
      Operation *kept = &op;
      if (auto call = dyn_cast<func::CallOp>(op)) {
        FailureOr<Halves *> halves = differentiate(symbols.lookup<func::FuncOp>(call.getCallee()));
        if (failed(halves))
          return failure();
        b.setInsertionPoint(call);
        auto split = lm::createCallLike(b, call, (*halves)->forward, call.getOperands());
        call.replaceAllUsesWith(split.getResults().take_front(call.getNumResults()));
        call.erase();
        kept = split;
      }
      forwardOps.push_back(kept);
    }

    b.setInsertionPoint(ret);
    Value loss = ret.getOperand(0);
    Value scale = lm::LoadOp::create(b, loss.getLoc(), lossType, kLossScale);
    Cotangents cotangents(b);
    cotangents.add(loss, scale);
    SmallVector<Recomputed> recomputed;
    if (failed(appendBackward(forwardOps, cotangents, &recomputed)))
      return failure();
    markBackward(scale.getDefiningOp(), ret);

    // A VJP may compute the results of its forward op again. If a balancing loss reads these
    // results, and only the return op reads the loss, the loss moves after the VJP. If no op before
    // the VJP then reads the results, the VJP's results replace them, and the forward op is erased.
    for (auto &[op, results] : recomputed) {
      Operation *again = results.front().getDefiningOp();
      for (Operation *reader : llvm::make_early_inc_range(op->getUsers()))
        if (auto balance = dyn_cast<lm::BalanceLossOp>(reader);
            balance && balance->hasOneUse() && *balance->user_begin() == ret) {
          balance->moveAfter(again);
          balance.setBackward(true);
        }
      if (!llvm::all_of(op->getUsers(),
                        [&](Operation *reader) { return again->isBeforeInBlock(reader); }))
        continue;
      op->replaceAllUsesWith(results);
      op->erase();
    }

    loss = ret.getOperand(0);
    Value mean = lm::ScaleOp::create(b, loss.getLoc(), lossType, loss, scale);
    lm::AccumulateOp::create(b, loss.getLoc(), mean, names::kLoss);
    ret.getOperandsMutable().clear();
    micro.setFunctionType(b.getFunctionType({}, {}));

    // Each contribution is added to its main gradient right after it is computed.
    llvm::SmallVector<lm::LoadOp> loads(body.getOps<lm::LoadOp>());
    llvm::DenseMap<Value, unsigned> owners; // number of parameters that share a cotangent
    for (lm::LoadOp load : loads)
      if (Value gradient = cotangents.get(load.getResult()))
        ++owners[gradient];
    for (lm::LoadOp load : loads) {
      auto variable = symbols.lookup<lm::VariableOp>(load.getVariable());
      if (!variable)
        return load.emitOpError("refers to no lm.variable");
      bool copy = variable.getKind() == lm::VariableKind::ComputeCopy;
      if (!copy && variable.getKind() != lm::VariableKind::Parameter)
        continue;
      Value gradient = cotangents.get(load.getResult());
      if (!gradient)
        continue;
      lm::VariableOp main = gradientOf(copy ? *variable.getParameter() : variable.getSymName());
      // A parameter that is used several times has several contributions. Each is added separately,
      // so that the op that computes a contribution can also add it.
      SmallVector<Value> contributions{gradient};
      for (size_t i = 0; i < contributions.size();) {
        auto sum = contributions[i].getDefiningOp<lm::AddOp>();
        if (!sum || owners[gradient] > 1 || !sum->use_empty() ||
            sum->isBeforeInBlock(scale.getDefiningOp())) {
          ++i;
          continue;
        }
        contributions[i] = sum.getLhs();
        contributions.insert(contributions.begin() + i + 1, sum.getRhs());
        sum.erase();
      }
      for (Value contribution : contributions) {
        if (contribution.getType() != main.getType())
          return load.emitOpError("is a parameter whose gradient comes as ")
                 << contribution.getType() << ", not in the accumulation dtype";
        b.setInsertionPointAfterValue(contribution);
        lm::AccumulateOp::create(b, load.getLoc(), contribution, main.getSymName(),
                                 /*backward=*/true);
      }
    }

    // @eval keeps the undifferentiated graph.
    forward.setSymName(names::kEval);
    auto evalReturn = cast<func::ReturnOp>(forward.getBody().front().getTerminator());
    b.setInsertionPoint(evalReturn);
    Value evalLoss = evalReturn.getOperand(0);
    if (auto balance = evalLoss.getDefiningOp<lm::BalanceLossOp>())
      evalLoss = balance.getLoss(); // the loss of the tokens, without the balancing loss
    lm::StoreOp::create(b, forward.getLoc(), evalLoss, names::kEvalLoss);
    evalReturn.getOperandsMutable().clear();
    // Sums over an optimizer step cover only its micro-steps, so @eval accumulates nothing.
    for (auto accumulate : llvm::make_early_inc_range(forward.getOps<lm::AccumulateOp>()))
      accumulate.erase();
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(forward.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
    forward.setFunctionType(b.getFunctionType({}, {}));
    return success();
  }

private:
  // An op of the forward pass, and `results`, which the VJP of the op computes a second time.
  struct Recomputed {
    Operation *op;
    SmallVector<Value> results;
  };

  // Appends the VJPs of `forwardOps` at the builder's insertion point. If `recomputed` is not null,
  // appends to it the ops whose results their VJP also computes.
  LogicalResult appendBackward(ArrayRef<Operation *> forwardOps, Cotangents &cotangents,
                               SmallVectorImpl<Recomputed> *recomputed = nullptr) {
    for (Operation *op : llvm::reverse(forwardOps)) {
      auto seeds = llvm::map_to_vector(op->getResults(),
                                       [&](Value result) { return cotangents.get(result); });
      if (llvm::none_of(seeds, [](Value seed) { return bool(seed); }))
        continue;
      if (auto call = dyn_cast<func::CallOp>(op)) {
        if (failed(differentiateCall(call, cotangents)))
          return failure();
        continue;
      }
      if (isa<lm::LoadOp>(op))
        continue; // a load has no operands; run() reads the cotangent of the loaded value later
      auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
      if (!differentiable)
        return op->emitOpError("is on the path from a parameter to the loss but has no VJP");
      Gradients gradients = differentiable.buildVjp(b, seeds);
      if (failed(gradients))
        return failure();
      for (auto [operand, gradient] : llvm::zip(op->getOperands(), *gradients))
        cotangents.add(operand, gradient);
      if (!recomputed)
        continue;
      if (SmallVector<Value> results = differentiable.getResultsFromVjp(*gradients);
          !results.empty())
        recomputed->push_back({op, std::move(results)});
    }
    return success();
  }

  // Appends the call of a layer's backward half. `call` calls the layer's forward half.
  LogicalResult differentiateCall(func::CallOp call, Cotangents &cotangents) {
    auto it = llvm::find_if(
        done, [&](auto &entry) { return entry.second.forward.getSymName() == call.getCallee(); });
    Halves &halves = it->second;
    SmallVector<Value> operands;
    const auto results = unsigned(halves.hasGradient.size());
    for (unsigned i = 0; i < results; ++i) {
      if (!halves.hasGradient[i])
        continue;
      Value seed = cotangents.get(call.getResult(i));
      if (!seed)
        return call.emitOpError("has a result that the loss does not depend on");
      operands.push_back(seed);
    }
    for (unsigned i = results; i < call.getNumResults(); ++i)
      operands.push_back(call.getResult(i));
    for (unsigned argument : halves.readArguments)
      operands.push_back(call.getOperand(argument));
    auto backward = lm::createCallLike(b, call, halves.backward, operands);
    for (auto [argument, index] : llvm::enumerate(halves.gradientOfArgument))
      if (index >= 0)
        cotangents.add(call.getOperand(unsigned(argument)), backward.getResult(unsigned(index)));
    return success();
  }

  FailureOr<Halves *> differentiate(func::FuncOp function) {
    if (!function || function.isExternal())
      return module.emitError("calls a layer that has no body");
    auto known = done.find(function.getSymNameAttr());
    if (known != done.end())
      return &known->second;

    std::string name = function.getSymName().str();
    OpBuilder::InsertionGuard guard(b);
    func::FuncOp joint = lm::cloneAs(b, function, name + ".forward", symbols);
    Block &body = joint.getBody().front();
    auto ret = cast<func::ReturnOp>(body.getTerminator());
    SmallVector<Operation *> forwardOps;
    for (Operation &op : body.without_terminator()) {
      if (isa<func::CallOp>(op))
        return op.emitOpError("cannot be differentiated inside a layer: layers do not nest");
      if (isa<lm::LoadOp>(op))
        return op.emitOpError("reads state inside a layer; pass the value as an argument");
      forwardOps.push_back(&op);
    }
    if (forwardOps.empty())
      return function.emitOpError("is a layer without ops");

    // Builds the joint graph. The cotangents of the results are additional arguments.
    Halves halves;
    unsigned numArguments = body.getNumArguments(), numCotangents = 0;
    b.setInsertionPoint(ret);
    Cotangents cotangents(b);
    for (Value result : ret.getOperands()) {
      halves.hasGradient.push_back(hasGradient(result));
      if (!halves.hasGradient.back())
        continue;
      cotangents.add(result, body.addArgument(result.getType(), result.getLoc()));
      ++numCotangents;
    }
    Operation *lastForward = ret->getPrevNode();
    if (failed(appendBackward(forwardOps, cotangents)))
      return failure();
    markBackward(lastForward->getNextNode(), ret);

    SmallVector<Value> gradients;
    for (unsigned i = 0; i < numArguments; ++i) {
      Value gradient = cotangents.get(body.getArgument(i));
      halves.gradientOfArgument.push_back(gradient ? int(gradients.size()) : -1);
      if (gradient)
        gradients.push_back(gradient);
    }

    // Cuts the joint graph into the forward and the backward half.
    llvm::SetVector<Value> saved;
    llvm::SmallSetVector<unsigned, 16> readArguments;
    for (Operation *op = lastForward->getNextNode(); op != ret; op = op->getNextNode())
      for (Value operand : op->getOperands()) {
        if (auto argument = dyn_cast<BlockArgument>(operand)) {
          if (argument.getArgNumber() < numArguments)
            readArguments.insert(argument.getArgNumber());
        } else if (operand.getDefiningOp()->isBeforeInBlock(lastForward) ||
                   operand.getDefiningOp() == lastForward) {
          saved.insert(operand);
        }
      }
    halves.readArguments.append(readArguments.begin(), readArguments.end());
    // lm.route computes the gradient of a router's bias, so the forward half returns this gradient.
    for (Value gradient : gradients)
      if (Operation *op = gradient.getDefiningOp(); op && !lastForward->isBeforeInBlock(op))
        saved.insert(gradient);

    SmallVector<Value> backwardValues(body.getArguments().drop_front(numArguments));
    backwardValues.append(saved.begin(), saved.end());
    for (unsigned argument : halves.readArguments)
      backwardValues.push_back(body.getArgument(argument));
    b.setInsertionPointAfter(joint);
    halves.backward = func::FuncOp::create(
        b, function.getLoc(), name + ".backward",
        b.getFunctionType(ValueRange(backwardValues).getTypes(), ValueRange(gradients).getTypes()));
    halves.backward.setPrivate();
    Block *backwardBody = halves.backward.addEntryBlock();
    IRMapping mapping;
    mapping.map(backwardValues, backwardBody->getArguments());
    b.setInsertionPointToStart(backwardBody);
    SmallVector<Operation *> moved;
    for (Operation *op = lastForward->getNextNode(); op != ret; op = op->getNextNode()) {
      b.clone(*op, mapping);
      moved.push_back(op);
    }
    auto returned =
        llvm::map_to_vector(gradients, [&](Value each) { return mapping.lookup(each); });
    func::ReturnOp::create(b, function.getLoc(), returned);

    for (Operation *op : llvm::reverse(moved))
      op->erase();
    body.eraseArguments(numArguments, numCotangents);
    ret.getOperandsMutable().append(saved.getArrayRef());
    joint.setFunctionType(
        b.getFunctionType(function.getFunctionType().getInputs(), ret.getOperandTypes()));
    halves.forward = joint;
    symbols.insert(halves.backward);
    return &(done[function.getSymNameAttr()] = std::move(halves));
  }

  // Returns the main gradient of a parameter. Declares it if it does not exist.
  lm::VariableOp gradientOf(StringRef parameter) {
    using Kind = lm::VariableKind;
    if (lm::VariableOp known = state.find(parameter, Kind::Gradient))
      return known;
    lm::VariableOp owner = state.find(parameter, Kind::Parameter);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(owner);
    auto gradient = lm::VariableOp::create(
        b, owner.getLoc(), lm::stateName(parameter, Kind::Gradient), Kind::Gradient,
        owner.getType(), lm::InitAttr::get(b.getContext(), lm::InitKind::Zeros), false,
        owner.getSymNameAttr());
    gradient.setGroups(owner.getGroups());
    symbols.insert(gradient);
    state.insert(gradient);
    return gradient;
  }

  void declareScalar(StringRef name, Type type, std::optional<lm::StepValue> value = {}) {
    if (symbols.lookup(name))
      return;
    auto scalar = lm::VariableOp::create(b, module.getLoc(), name, lm::VariableKind::Scalar, type,
                                         lm::InitAttr::get(b.getContext(), lm::InitKind::None));
    if (value)
      scalar.setStepValue(*value);
    symbols.insert(scalar);
  }

  ModuleOp module;
  SymbolTable symbols;
  lm::ParameterState state;
  OpBuilder b;
  llvm::MapVector<StringAttr, Halves> done;
};

struct AutodiffPass : lmc::impl::AutodiffPassBase<AutodiffPass> {
  void runOnOperation() override {
    if (failed(Differentiator(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace
