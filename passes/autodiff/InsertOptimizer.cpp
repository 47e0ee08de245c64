// lm-insert-optimizer: builds @optimizer, which computes the new parameters from the main
// gradients.
//
//   norm = lm.global_norm(all gradients)
//   guarded = lm.guard_norm(norm, loss, limits of the step)
//   p, m, v, ... = lm.adamw(p, p.grad, m, v, guarded, lr, ...)     per parameter
//
// A module without @run.loss has no lm.guard_norm. The parameters of a group read the group's
// learning rate (@run.lr.GROUP), and the group's weight decay if the group has one. The optimizer
// may be any op with OptimizerOpInterface instead of lm.adamw. lm.balance_bias updates a router's
// bias. Its gradient variable holds a value that is no gradient, so the bias is in no norm.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"
#include "ground/plan/MomentBlock.h"
#include "ground/plan/Names.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/StringExtras.h"

namespace lmc {
#define GEN_PASS_DEF_INSERTOPTIMIZERPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using lm::OptimizerOpInterface;
using lm::OptimizerScalar;
using lm::OptimizerState;
using Kind = lm::VariableKind;

static constexpr OptimizerScalar kLimits[] = {
    {.name = "run.norm_limit", .stepValue = lm::StepValue::NormLimit},
    {.name = "run.loss_limit", .stepValue = lm::StepValue::LossLimit},
};

static_assert(lm::AdamW8bitOp::kBlock == kMomentBlock, "plans have the blocks of the op");

namespace {

// A scalar that optimizer steps read. The host writes a setting of the job or a `stepValue` to it.
struct Scalar {
  std::string name;
  std::string setting;
  std::optional<lm::StepValue> stepValue;
  lm::GroupAttr group; // the group whose learning rate this is; may be null
};

struct Optimizer {
  std::string op; // "lm.adamw"
  const OptimizerOpInterface::Concept *facts; // the op's states and scalars
  DictionaryAttr attributes;                  // attributes of the op; null if it has none
};

// Returns the scalar variable that steps of `group` (null: no group) read as `scalar`.
Scalar scalarOf(const OptimizerScalar &scalar, lm::GroupAttr group) {
  Scalar own{scalar.name.str(), scalar.setting.str(), scalar.stepValue, {}};
  if (!group)
    return own;
  const std::string name = own.name + "." + group.getName().str();
  if (scalar.stepValue == lm::StepValue::LearningRate)
    return {name, "", lm::StepValue::GroupLearningRate, group};
  if (scalar.stepValue == lm::StepValue::MuonLearningRate)
    return {name, "", lm::StepValue::GroupMuonLearningRate, group};
  if (scalar.decays && group.getOwnDecay())
    return {name, names::groupSetting(group.getName().getValue(), "weight_decay"), {}, {}};
  return own;
}

Optimizer optimizerOf(MLIRContext *context, StringRef type) {
  return {("lm." + type).str(), OptimizerOpInterface::lookup(context, type), {}};
}

SmallVector<StringRef> optimizerTypes(MLIRContext *context) {
  SmallVector<StringRef> types;
  for (RegisteredOperationName name : context->getRegisteredOperationsByDialect("lm"))
    if (name.hasInterface<OptimizerOpInterface>() &&
        name.getStringRef() != lm::BalanceBiasOp::getOperationName())
      types.push_back(name.stripDialect());
  llvm::sort(types);
  return types;
}

class OptimizerBuilder {
public:
  OptimizerBuilder(ModuleOp module, ArrayRef<lm::VariableOp> parameters)
      : symbols(module), state(module), b(module), loc(module.getLoc()), parameters(parameters) {
    master = cast<RankedTensorType>(lm::VariableOp(parameters[0]).getType()).getElementType();
    scalarType = RankedTensorType::get({}, master);
  }

  // Chooses the optimizer op of each parameter: lm.balance_bias for a router's bias, else `type`. A
  // parameter that `type` does not support gets the fallback of `type`. `attributes` are those of
  // `type`, or null. Returns false if `type` supports no parameter.
  bool chooseOptimizers(StringRef type, DictionaryAttr attributes) {
    Optimizer wanted = optimizerOf(b.getContext(), type);
    wanted.attributes = attributes;
    bool takesAny = false;
    for (lm::VariableOp parameter : parameters) {
      if (FloatAttr balanced = parameter.getBalancedAttr()) {
        optimizers.push_back(optimizerOf(b.getContext(), "balance_bias"));
        optimizers.back().attributes = b.getDictionaryAttr(b.getNamedAttr("balanced", balanced));
        continue;
      }
      bool taken = wanted.facts->takes(lm::steppedParameter(parameter));
      takesAny |= taken;
      optimizers.push_back(taken ? wanted
                                 : optimizerOf(b.getContext(), wanted.facts->getFallback()));
    }
    return takesAny;
  }

  void declareScalars() {
    for (auto [parameter, optimizer] : llvm::zip(parameters, optimizers))
      for (const OptimizerScalar &scalar : optimizer.facts->getScalars())
        declareScalar(scalarOf(scalar, lm::VariableOp(parameter).getGroupAttr()));
    for (const char *name : {names::kGradNorm, names::kParamNorm, names::kUpdateNorm})
      declareScalar({name, "", {}, {}});
    if (symbols.lookup(names::kLoss))
      for (const OptimizerScalar &limit : kLimits)
        declareScalar(scalarOf(limit, {}));
  }

  void declareStates() {
    for (auto [each, optimizer] : llvm::zip(parameters, optimizers)) {
      lm::VariableOp parameter = each;
      b.setInsertionPointAfter(parameter);
      for (const OptimizerState &kept :
           optimizer.facts->getStates(cast<RankedTensorType>(parameter.getType()))) {
        auto variable = lm::VariableOp::create(
            b, loc, lm::stateName(parameter.getSymName(), kept.kind), kept.kind, kept.type,
            lm::InitAttr::get(b.getContext(), kept.init), false, parameter.getSymNameAttr());
        symbols.insert(variable);
        state.insert(variable);
      }
    }
  }

  void build(ModuleOp module) {
    b.setInsertionPointToEnd(module.getBody());
    auto function = func::FuncOp::create(b, loc, names::kOptimizer, b.getFunctionType({}, {}));
    symbols.insert(function);
    b.setInsertionPointToStart(function.addEntryBlock());

    SmallVector<Value> gradients, counted;
    for (lm::VariableOp parameter : parameters) {
      gradients.push_back(load(parameter, Kind::Gradient));
      if (!parameter.getBalanced())
        counted.push_back(gradients.back());
    }
    Value norm = lm::GlobalNormOp::create(b, named("grad_norm"), scalarType, counted);
    store(norm, names::kGradNorm);
    const Value guarded = guard(norm);
    for (auto [parameter, optimizer] : llvm::zip(parameters, optimizers))
      for (const OptimizerScalar &scalar : optimizer.facts->getScalars()) {
        const std::string name = scalarOf(scalar, lm::VariableOp(parameter).getGroupAttr()).name;
        if (Value &loaded = scalars[name]; !loaded)
          loaded = load(symbols.lookup<lm::VariableOp>(name));
      }
    SmallVector<Value> updateParts, parameterParts;
    for (auto [parameter, optimizer, gradient] : llvm::zip(parameters, optimizers, gradients)) {
      OptimizerOpInterface made = step(parameter, optimizer, gradient, guarded);
      if (lm::VariableOp(parameter).getBalanced())
        continue;
      updateParts.push_back(made.getUpdateSums());
      parameterParts.push_back(made.getParameterSums());
    }
    store(lm::NormOfPartsOp::create(b, named("update_norm"), scalarType, updateParts),
          names::kUpdateNorm);
    store(lm::NormOfPartsOp::create(b, named("param_norm"), scalarType, parameterParts),
          names::kParamNorm);
    func::ReturnOp::create(b, loc);
  }

private:
  void declareScalar(const Scalar &scalar) {
    if (symbols.lookup(scalar.name))
      return;
    b.setInsertionPointAfter(lm::VariableOp(parameters.back()));
    auto variable = lm::VariableOp::create(b, loc, scalar.name, Kind::Scalar, scalarType,
                                           lm::InitAttr::get(b.getContext(), lm::InitKind::None));
    if (!scalar.setting.empty())
      variable.setSetting(StringRef(scalar.setting));
    if (scalar.stepValue)
      variable.setStepValue(*scalar.stepValue);
    if (scalar.group)
      variable.setGroupAttr(scalar.group);
    symbols.insert(variable);
  }

  // Returns the norm for all optimizer steps: lm.guard_norm(norm), or `norm` without @run.loss.
  Value guard(Value norm) {
    auto loss = symbols.lookup<lm::VariableOp>(names::kLoss);
    if (!loss)
      return norm;
    auto limit = [&](const OptimizerScalar &scalar) {
      return load(symbols.lookup<lm::VariableOp>(scalar.name));
    };
    return lm::GuardNormOp::create(b, named("guard_norm"), scalarType, norm, load(loss),
                                   limit(kLimits[0]), limit(kLimits[1]));
  }

  // Creates the optimizer step of one parameter, with the operands of OptimizerOpInterface.
  OptimizerOpInterface step(lm::VariableOp parameter, const Optimizer &optimizer, Value gradient,
                            Value norm) {
    auto type = cast<RankedTensorType>(parameter.getType());
    OperationState made(named(optimizer.facts->getStepName() + "/" + parameter.getSymName()),
                        optimizer.op);
    made.addOperands({load(parameter), gradient});
    made.addTypes(type);
    for (const OptimizerState &kept : optimizer.facts->getStates(type)) {
      made.addOperands(load(parameter, kept.kind));
      made.addTypes(kept.type);
    }
    made.addOperands(norm);
    for (const OptimizerScalar &scalar : optimizer.facts->getScalars())
      if (parameter.getWeightDecay() || !scalar.decays)
        made.addOperands(scalars.lookup(scalarOf(scalar, parameter.getGroupAttr()).name));
    Type sums = RankedTensorType::get({optimizer.facts->getNumSums(type)}, master);
    made.addTypes({sums, sums});
    if (lm::VariableOp copy = state.find(parameter.getSymName(), Kind::ComputeCopy))
      made.addTypes(copy.getType());

    if (optimizer.attributes)
      made.addAttributes(optimizer.attributes.getValue());
    auto step = cast<OptimizerOpInterface>(b.create(made));
    if (step->hasAttr(lm::kMatrices))
      step->setAttr(lm::kMatrices, b.getArrayAttr(lm::matricesOf(parameter)));
    for (const lm::OptimizerUse &use : step.getUses())
      if (use.result)
        store(use.result, lm::stateName(parameter.getSymName(), use.kind));
    return step;
  }

  Value load(lm::VariableOp variable) {
    return lm::LoadOp::create(b, loc, variable.getType(), variable.getSymName());
  }
  Value load(lm::VariableOp parameter, Kind kind) {
    return load(state.find(parameter.getSymName(), kind));
  }
  void store(Value value, StringRef name) {
    lm::StoreOp::create(b, value.getLoc(), value, name);
  }
  Location named(const Twine &name) { return NameLoc::get(b.getStringAttr(name)); }

  SymbolTable symbols;
  lm::ParameterState state;
  OpBuilder b;
  Location loc;
  ArrayRef<lm::VariableOp> parameters;
  SmallVector<Optimizer> optimizers; // the optimizer of each parameter
  llvm::StringMap<Value> scalars;    // loaded values, by name
  Type master;
  RankedTensorType scalarType;
};

struct InsertOptimizerPass : lmc::impl::InsertOptimizerPassBase<InsertOptimizerPass> {
  using InsertOptimizerPassBase::InsertOptimizerPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const auto *wanted = OptimizerOpInterface::lookup(&getContext(), type);
    if (!wanted) {
      module.emitError("type must be ")
          << llvm::join(optimizerTypes(&getContext()), " or ") << ", not '" << type << "'";
      return signalPassFailure();
    }
    lm::ParameterState state(module);
    SmallVector<lm::VariableOp> parameters;
    for (auto variable : module.getOps<lm::VariableOp>())
      if (variable.getKind() == Kind::Parameter &&
          state.find(variable.getSymName(), Kind::Gradient))
        parameters.push_back(variable);
    if (parameters.empty()) {
      module.emitOpError("has no parameter with a gradient; run lm-autodiff first");
      return signalPassFailure();
    }
    DictionaryAttr known;
    if (!attributes.empty()) {
      known = dyn_cast_or_null<DictionaryAttr>(
          parseAttribute("{" + attributes + "}", &getContext(), Type()));
      if (!known) {
        module.emitError("attributes must be those of an op, NAME = VALUE, ..., not '")
            << attributes << "'";
        return signalPassFailure();
      }
    }
    OptimizerBuilder builder(module, parameters);
    if (!builder.chooseOptimizers(type, known)) {
      module.emitError("optimizer.type ")
          << type << " " << wanted->getRequirement() << ", and this model has none; use "
          << wanted->getFallback();
      return signalPassFailure();
    }
    builder.declareScalars();
    builder.declareStates();
    builder.build(module);
  }
};
} // namespace
