// lm-keep-codes: casts a weight to 8 bits once a step, not in each micro-step. Passes.td shows an
// example.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

namespace lmc {
#define GEN_PASS_DEF_KEEPCODESPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// The cast of a variable that a function loads.
struct Cast {
  lm::LoadOp load;
  lm::Fp8ScaleOp scale;
  lm::QuantizeOp codes;
  lm::TransposeOp transposed; // null if nothing reads it
};

// Returns the casts of a function, whose scales come from the variables themselves.
SmallVector<Cast> castsOf(func::FuncOp function) {
  SmallVector<Cast> casts;
  for (auto codes : function.getBody().front().getOps<lm::QuantizeOp>()) {
    auto load = codes.getX().getDefiningOp<lm::LoadOp>();
    auto scale = codes.getScale().getDefiningOp<lm::Fp8ScaleOp>();
    auto max = scale ? scale.getMax().getDefiningOp<lm::MaxAbsOp>() : lm::MaxAbsOp();
    if (!load || !max || max.getX() != load.getResult())
      continue;
    Cast &cast = casts.emplace_back(Cast{load, scale, codes, {}});
    for (Operation *user : codes->getUsers())
      if (auto transposed = dyn_cast<lm::TransposeOp>(user))
        cast.transposed = transposed;
  }
  return casts;
}

struct KeepCodesPass : lmc::impl::KeepCodesPassBase<KeepCodesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    auto first = symbols.lookup<func::FuncOp>(names::kMicroFirst);
    SmallVector<func::FuncOp> later;
    for (StringRef name : {names::kMicro, names::kMicroLast})
      if (auto function = symbols.lookup<func::FuncOp>(name))
        later.push_back(function);
    if (!first || later.empty())
      return;
    OpBuilder b(&getContext());
    // Keeps `value`, which `first` computes, in a new variable, and returns the variable's name.
    auto keep = [&](lm::LoadOp load, StringRef what, Value value) {
      const std::string name = (load.getVariable() + "." + what).str();
      b.setInsertionPointToStart(module.getBody());
      auto variable = lm::VariableOp::create(b, load.getLoc(), name, lm::VariableKind::ComputeCopy,
                                             value.getType(),
                                             lm::InitAttr::get(&getContext(), lm::InitKind::None));
      variable.setAnonymous(true);
      symbols.insert(variable);
      b.setInsertionPoint(first.getBody().front().getTerminator());
      lm::StoreOp::create(b, load.getLoc(), value, variable.getSymName());
      return variable.getSymName();
    };
    struct Kept {
      StringRef scale, codes, transposed;
    };
    llvm::StringMap<Kept> kept; // key: the name of the weight
    for (Cast cast : castsOf(first))
      if (!kept.contains(cast.load.getVariable())) {
        Kept &names = kept[cast.load.getVariable()];
        names.codes = keep(cast.load, "codes", cast.codes);
        names.scale = keep(cast.load, "scale", cast.scale);
        if (cast.transposed)
          names.transposed = keep(cast.load, "transposed", cast.transposed);
        ++numKept;
      }
    auto read = [&](Operation *op, StringRef variable) {
      b.setInsertionPoint(op);
      Value value = op->getResult(0);
      value.replaceAllUsesWith(lm::LoadOp::create(b, op->getLoc(), value.getType(), variable));
    };
    for (func::FuncOp function : later)
      for (Cast cast : castsOf(function))
        if (const auto known = kept.find(cast.load.getVariable()); known != kept.end()) {
          if (cast.transposed && !known->second.transposed.empty()) {
            read(cast.transposed, known->second.transposed);
            cast.transposed.erase();
          }
          read(cast.codes, known->second.codes);
          read(cast.scale, known->second.scale);
          for (Operation *op : {cast.codes.getOperation(), cast.scale.getOperation()})
            op->erase();
        }
  }
};
} // namespace
