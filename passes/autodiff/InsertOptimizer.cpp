// lm-insert-optimizer: @optimizer, from the main gradients to the new parameters.
//
//   norm = lm.global_norm(all gradients)
//   p, m, v, ... = lm.adamw(p, p.grad, m, v, norm, lr, ...)     per parameter
//
// or lm.adamw8bit, where the moments are kept in 8 bits.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"
#include "runtime/plan/MomentBlock.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

namespace lmc {
#define GEN_PASS_DEF_INSERTOPTIMIZERPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

static_assert(lm::AdamW8bitOp::kBlock == kMomentBlock, "plans have the blocks of the op");

namespace {

class OptimizerBuilder {
public:
  OptimizerBuilder(ModuleOp module, ArrayRef<lm::VariableOp> parameters, bool coded)
      : module(module), symbols(module), b(module), loc(module.getLoc()), parameters(parameters),
        coded(coded) {
    master = cast<RankedTensorType>(lm::VariableOp(parameters[0]).getType()).getElementType();
    scalarType = RankedTensorType::get({}, master);
  }

  bool isAnyCoded() {
    return llvm::any_of(parameters, [&](lm::VariableOp p) { return isCoded(p); });
  }
  void declareScalars();
  void declareMoments(lm::VariableOp parameter);
  void build();

private:
  // Sums of squares of the update and of the parameter, as they come from its AdamW.
  struct Sums {
    Value update, parameter;
  };
  struct Scalars {
    Value norm, lr, beta1, beta2, eps, decay, correction1, correction2, clip;
  };

  bool isCoded(lm::VariableOp parameter);
  Scalars loadScalars(Value norm);
  Sums step(lm::VariableOp parameter, Value gradient, const Scalars &scalars);
  Sums codedStep(lm::VariableOp parameter, Value gradient, const Scalars &scalars);

  Value load(const Twine &name) {
    std::string symbol = name.str();
    auto variable = symbols.lookup<lm::VariableOp>(symbol);
    return lm::LoadOp::create(b, loc, variable.getType(), symbol);
  }
  void store(Value value, const Twine &name) {
    lm::StoreOp::create(b, value.getLoc(), value, name.str());
  }
  Location stepLocation(lm::VariableOp parameter) {
    return NameLoc::get(b.getStringAttr("adamw/" + parameter.getSymName().str()));
  }
  Type copyType(lm::VariableOp parameter) {
    auto copy = symbols.lookup<lm::VariableOp>((parameter.getSymName() + ".compute").str());
    return copy ? copy.getType() : Type();
  }

  ModuleOp module;
  SymbolTable symbols;
  OpBuilder b;
  Location loc;
  ArrayRef<lm::VariableOp> parameters;
  const bool coded;
  Type master;
  RankedTensorType scalarType;
};

} // namespace

// Whether a parameter's moments are kept in 8 bits: a matrix of f32 whose named parts are
// whole blocks. Vectors (norms and biases) are little memory, and few elements that matter much.
bool OptimizerBuilder::isCoded(lm::VariableOp parameter) {
  auto type = cast<RankedTensorType>(parameter.getType());
  if (!coded || type.getRank() != 2 || !master.isF32())
    return false;
  auto isWhole = [&](int64_t rows) {
    return rows * type.getDimSize(1) % lm::AdamW8bitOp::kBlock == 0;
  };
  if (!parameter.getParts())
    return isWhole(type.getDimSize(0));
  return llvm::all_of(parameter.getPartsAttr().getAsRange<DictionaryAttr>(),
                      [&](DictionaryAttr part) {
                        return isWhole(part.getAs<IntegerAttr>("rows").getInt());
                      });
}

void OptimizerBuilder::declareScalars() {
  auto none = b.getDictionaryAttr(b.getNamedAttr("kind", b.getStringAttr("none")));
  for (StringRef name :
       {"run.lr", "run.beta1", "run.beta2", "run.eps", "run.weight_decay", "run.bias_correction1",
        "run.bias_correction2", "run.clip_grad", "run.grad_norm", "run.param_norm",
        "run.update_norm"}) {
    b.setInsertionPointAfter(lm::VariableOp(parameters.back()));
    symbols.insert(lm::VariableOp::create(b, loc, name, lm::VariableKind::Scalar, scalarType, none,
                                          false, StringAttr()));
  }
}

void OptimizerBuilder::declareMoments(lm::VariableOp parameter) {
  auto zeros = b.getDictionaryAttr(b.getNamedAttr("kind", b.getStringAttr("zeros")));
  auto type = cast<RankedTensorType>(parameter.getType());
  b.setInsertionPointAfter(parameter);
  auto declare = [&](StringRef suffix, lm::VariableKind kind, Type declared) {
    symbols.insert(lm::VariableOp::create(b, loc, (parameter.getSymName() + suffix).str(), kind,
                                          declared, zeros, false, parameter.getSymNameAttr()));
  };
  using Kind = lm::VariableKind;
  if (!isCoded(parameter)) {
    declare(".moment1", Kind::Moment1, type);
    declare(".moment2", Kind::Moment2, type);
    return;
  }
  RankedTensorType codes = type.clone(b.getI8Type());
  auto scales = RankedTensorType::get({type.getNumElements() / lm::AdamW8bitOp::kBlock}, master);
  declare(".moment1", Kind::Moment1, codes);
  declare(".moment1_scale", Kind::Moment1Scale, scales);
  declare(".moment2", Kind::Moment2, codes);
  declare(".moment2_scale", Kind::Moment2Scale, scales);
}

OptimizerBuilder::Scalars OptimizerBuilder::loadScalars(Value norm) {
  Scalars s;
  s.norm = norm;
  s.lr = load("run.lr");
  s.beta1 = load("run.beta1");
  s.beta2 = load("run.beta2");
  s.eps = load("run.eps");
  s.decay = load("run.weight_decay");
  s.correction1 = load("run.bias_correction1");
  s.correction2 = load("run.bias_correction2");
  s.clip = load("run.clip_grad");
  return s;
}

OptimizerBuilder::Sums OptimizerBuilder::step(lm::VariableOp parameter, Value gradient,
                                              const Scalars &s) {
  StringRef name = parameter.getSymName();
  auto type = cast<RankedTensorType>(parameter.getType());
  auto rows = RankedTensorType::get({type.getRank() == 2 ? type.getDimSize(0) : 1}, master);
  Value p = load(name), m = load(name + ".moment1"), v = load(name + ".moment2");
  auto adamw = lm::AdamWOp::create(
      b, stepLocation(parameter), type, type, type, rows, rows, copyType(parameter), p, gradient, m,
      v, s.norm, s.lr, s.beta1, s.beta2, s.eps, parameter.getWeightDecay() ? s.decay : Value(),
      s.correction1, s.correction2, s.clip);
  store(adamw.getNewParameter(), name);
  store(adamw.getNewMoment1(), name + ".moment1");
  store(adamw.getNewMoment2(), name + ".moment2");
  if (Value copy = adamw.getCompute())
    store(copy, name + ".compute");
  return {adamw.getUpdateSq(), adamw.getParamSq()};
}

OptimizerBuilder::Sums OptimizerBuilder::codedStep(lm::VariableOp parameter, Value gradient,
                                                   const Scalars &s) {
  StringRef name = parameter.getSymName();
  Value p = load(name), m = load(name + ".moment1"), mScale = load(name + ".moment1_scale"),
        v = load(name + ".moment2"), vScale = load(name + ".moment2_scale");
  Type type = p.getType(), codes = m.getType(), scales = mScale.getType();
  auto adamw = lm::AdamW8bitOp::create(
      b, stepLocation(parameter), type, codes, scales, codes, scales, scales, scales,
      copyType(parameter), p, gradient, m, mScale, v, vScale, s.norm, s.lr, s.beta1, s.beta2,
      s.eps, parameter.getWeightDecay() ? s.decay : Value(), s.correction1, s.correction2, s.clip);
  store(adamw.getNewParameter(), name);
  store(adamw.getNewMoment1(), name + ".moment1");
  store(adamw.getNewMoment1Scale(), name + ".moment1_scale");
  store(adamw.getNewMoment2(), name + ".moment2");
  store(adamw.getNewMoment2Scale(), name + ".moment2_scale");
  if (Value copy = adamw.getCompute())
    store(copy, name + ".compute");
  return {adamw.getUpdateSq(), adamw.getParamSq()};
}

void OptimizerBuilder::build() {
  b.setInsertionPointToEnd(module.getBody());
  auto optimizer = func::FuncOp::create(b, loc, "optimizer", b.getFunctionType({}, {}));
  symbols.insert(optimizer);
  b.setInsertionPointToStart(optimizer.addEntryBlock());
  auto named = [&](StringRef name) { return NameLoc::get(b.getStringAttr(name)); };

  SmallVector<Value> gradients;
  for (lm::VariableOp parameter : parameters)
    gradients.push_back(load(parameter.getSymName() + ".grad"));
  Value norm = lm::GlobalNormOp::create(b, named("grad_norm"), scalarType, gradients);
  store(norm, "run.grad_norm");
  Scalars scalars = loadScalars(norm);
  SmallVector<Value> updateParts, parameterParts;
  for (auto [parameter, gradient] : llvm::zip(parameters, gradients)) {
    Sums sums = isCoded(parameter) ? codedStep(parameter, gradient, scalars)
                                   : step(parameter, gradient, scalars);
    updateParts.push_back(sums.update);
    parameterParts.push_back(sums.parameter);
  }
  store(lm::NormOfPartsOp::create(b, named("update_norm"), scalarType, updateParts),
        "run.update_norm");
  store(lm::NormOfPartsOp::create(b, named("param_norm"), scalarType, parameterParts),
        "run.param_norm");
  func::ReturnOp::create(b, loc);
}

namespace {
struct InsertOptimizerPass : lmc::impl::InsertOptimizerPassBase<InsertOptimizerPass> {
  using InsertOptimizerPassBase::InsertOptimizerPassBase;
  void runOnOperation() override;
};
} // namespace

void InsertOptimizerPass::runOnOperation() {
  ModuleOp module = getOperation();
  if (type != "adamw" && type != "adamw8bit") {
    module.emitError("type must be adamw or adamw8bit, not '") << type << "'";
    return signalPassFailure();
  }
  SymbolTable symbols(module);
  SmallVector<lm::VariableOp> parameters;
  for (auto variable : module.getOps<lm::VariableOp>())
    if (variable.getKind() == lm::VariableKind::Parameter &&
        symbols.lookup((variable.getSymName() + ".grad").str()))
      parameters.push_back(variable);
  if (parameters.empty()) {
    module.emitOpError("has no parameter with a gradient; run lm-autodiff first");
    return signalPassFailure();
  }
  OptimizerBuilder builder(module, parameters, type == "adamw8bit");
  if (type == "adamw8bit" && !builder.isAnyCoded()) {
    module.emitError("optimizer.type adamw8bit keeps moments of f32 matrices in 8 bits whose "
                     "elements are a multiple of ")
        << lm::AdamW8bitOp::kBlock << ", and this model has none; use adamw";
    return signalPassFailure();
  }
  builder.declareScalars();
  for (lm::VariableOp parameter : parameters)
    builder.declareMoments(parameter);
  builder.build();
}
