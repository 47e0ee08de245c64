// lm-insert-optimizer: @optimizer, from the main gradients to the new parameters.
//
//   norm = lm.global_norm(all gradients)
//   p, m, v, ... = lm.adamw(p, p.grad, m, v, norm, lr, ...)     per parameter
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

namespace lmc {
#define GEN_PASS_DEF_INSERTOPTIMIZERPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {
struct InsertOptimizerPass : lmc::impl::InsertOptimizerPassBase<InsertOptimizerPass> {
  void runOnOperation() override;
};
} // namespace

void InsertOptimizerPass::runOnOperation() {
  ModuleOp module = getOperation();
  SymbolTable symbols(module);
  OpBuilder b(module);
  Location loc = module.getLoc();

  SmallVector<lm::VariableOp> parameters;
  for (auto variable : module.getOps<lm::VariableOp>())
    if (variable.getKind() == lm::VariableKind::Parameter &&
        symbols.lookup((variable.getSymName() + ".grad").str()))
      parameters.push_back(variable);
  if (parameters.empty()) {
    module.emitOpError("has no parameter with a gradient; run lm-autodiff first");
    return signalPassFailure();
  }
  Type master = cast<RankedTensorType>(parameters.front().getType()).getElementType();
  auto scalarType = RankedTensorType::get({}, master);
  auto zeros = b.getDictionaryAttr(b.getNamedAttr("kind", b.getStringAttr("zeros")));
  auto none = b.getDictionaryAttr(b.getNamedAttr("kind", b.getStringAttr("none")));

  auto declareScalar = [&](StringRef name) {
    b.setInsertionPointAfter(parameters.back());
    symbols.insert(lm::VariableOp::create(b, loc, name, lm::VariableKind::Scalar, scalarType, none,
                                          false, StringAttr()));
  };
  for (StringRef name :
       {"run.lr", "run.beta1", "run.beta2", "run.eps", "run.weight_decay", "run.bias_correction1",
        "run.bias_correction2", "run.clip_grad", "run.grad_norm", "run.param_norm",
        "run.update_norm"})
    declareScalar(name);
  for (lm::VariableOp parameter : parameters) {
    b.setInsertionPointAfter(parameter);
    auto declareMoment = [&](StringRef suffix, lm::VariableKind kind) {
      symbols.insert(lm::VariableOp::create(b, loc, (parameter.getSymName() + suffix).str(), kind,
                                            parameter.getType(), zeros, false,
                                            parameter.getSymNameAttr()));
    };
    declareMoment(".moment1", lm::VariableKind::Moment1);
    declareMoment(".moment2", lm::VariableKind::Moment2);
  }

  b.setInsertionPointToEnd(module.getBody());
  auto optimizer = func::FuncOp::create(b, loc, "optimizer", b.getFunctionType({}, {}));
  symbols.insert(optimizer);
  b.setInsertionPointToStart(optimizer.addEntryBlock());
  auto load = [&](const Twine &name, Type type) -> Value {
    return lm::LoadOp::create(b, loc, type, name.str());
  };
  auto scalar = [&](StringRef name) { return load(name, scalarType); };
  auto store = [&](Value value, const Twine &name) {
    lm::StoreOp::create(b, value.getLoc(), value, name.str());
  };

  SmallVector<Value> gradients;
  for (lm::VariableOp parameter : parameters)
    gradients.push_back(load(parameter.getSymName() + ".grad", parameter.getType()));
  Location normLoc = NameLoc::get(b.getStringAttr("grad_norm"));
  Value norm = lm::GlobalNormOp::create(b, normLoc, scalarType, gradients);
  store(norm, "run.grad_norm");

  Value lr = scalar("run.lr"), beta1 = scalar("run.beta1"), beta2 = scalar("run.beta2"),
        eps = scalar("run.eps"), decay = scalar("run.weight_decay"),
        correction1 = scalar("run.bias_correction1"), correction2 = scalar("run.bias_correction2"),
        clip = scalar("run.clip_grad");
  SmallVector<Value> updateParts, parameterParts;
  for (auto [parameter, gradient] : llvm::zip(parameters, gradients)) {
    StringRef name = parameter.getSymName();
    auto type = cast<RankedTensorType>(parameter.getType());
    auto copy = symbols.lookup<lm::VariableOp>((name + ".compute").str());
    auto rows = RankedTensorType::get({type.getRank() == 2 ? type.getDimSize(0) : 1}, master);
    Value p = load(name, type), m = load(name + ".moment1", type),
          v = load(name + ".moment2", type);
    auto adamw = lm::AdamWOp::create(
        b, NameLoc::get(b.getStringAttr("adamw/" + name.str())), type, type, type, rows, rows,
        copy ? copy.getType() : Type(), p, gradient, m, v, norm, lr, beta1, beta2, eps,
        parameter.getWeightDecay() ? decay : Value(), correction1, correction2, clip);
    store(adamw.getNewParameter(), name);
    store(adamw.getNewMoment1(), name + ".moment1");
    store(adamw.getNewMoment2(), name + ".moment2");
    if (copy)
      store(adamw.getCompute(), name + ".compute");
    updateParts.push_back(adamw.getUpdateSq());
    parameterParts.push_back(adamw.getParamSq());
  }
  store(lm::NormOfPartsOp::create(b, NameLoc::get(b.getStringAttr("update_norm")), scalarType,
                                  updateParts),
        "run.update_norm");
  store(lm::NormOfPartsOp::create(b, NameLoc::get(b.getStringAttr("param_norm")), scalarType,
                                  parameterParts),
        "run.param_norm");
  func::ReturnOp::create(b, loc);
}
