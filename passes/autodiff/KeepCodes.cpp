// lm-keep-codes: casts a weight to 8 bits once a step, not in each micro-step. Passes.td shows an
// example.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/EightBits.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_KEEPCODESPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// Returns the op that loads `weight`, which lm-read-masters may have rounded to the compute dtype;
// null if there is none.
lm::LoadOp loadOf(Value weight) {
  if (auto rounded = weight.getDefiningOp<lm::CastOp>())
    weight = rounded.getX();
  return weight.getDefiningOp<lm::LoadOp>();
}

// The cast of a variable that a function loads.
struct Cast {
  lm::LoadOp load;
  Value codes, scale;
  // The transposes of the codes and of scales of tiles; null if nothing reads them.
  Value transposed, transposedScales;
};

// Returns the casts of a function, whose scales come from the variables themselves.
SmallVector<Cast> castsOf(func::FuncOp function) {
  SmallVector<Cast> casts;
  auto add = [&](lm::LoadOp load, Value codes, Value scale) {
    Cast &cast = casts.emplace_back(Cast{load, codes, scale, {}, {}});
    if (auto transpose = lm::readerOf<lm::TransposeOp>(codes))
      cast.transposed = transpose;
    if (auto transpose = lm::readerOf<lm::TransposeScalesOp>(scale))
      cast.transposedScales = transpose;
  };
  for (auto tiles : function.getBody().front().getOps<lm::QuantizeTilesOp>())
    if (lm::LoadOp load = loadOf(tiles.getX()))
      add(load, tiles.getCodes(), tiles.getScales());
  for (auto codes : function.getBody().front().getOps<lm::QuantizeOp>())
    if (lm::LoadOp load = loadOf(codes.getX()); load && lm::hasOwnScale(codes))
      add(load, codes, codes.getScale());
  return casts;
}

// Returns the transposes of codes, and of scales of tiles, that a function loads, by the name of
// the variable. Ranks that exchange codes have them in variables.
static llvm::MapVector<StringRef, Value> transposesOf(func::FuncOp function) {
  llvm::MapVector<StringRef, Value> found;
  for (Operation &op : function.getBody().front())
    if (isa<lm::TransposeOp, lm::TransposeScalesOp>(op))
      if (auto load = op.getOperand(0).getDefiningOp<lm::LoadOp>())
        found[load.getVariable()] = op.getResult(0);
  return found;
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
    auto keep = [&](StringRef of, StringRef what, Value value) {
      const std::string name = (of + "." + what).str();
      b.setInsertionPointToStart(module.getBody());
      auto variable = lm::VariableOp::create(b, value.getLoc(), name, lm::VariableKind::ComputeCopy,
                                             value.getType(),
                                             lm::InitAttr::get(&getContext(), lm::InitKind::None));
      variable.setAnonymous(true);
      symbols.insert(variable);
      b.setInsertionPoint(first.getBody().front().getTerminator());
      lm::StoreOp::create(b, value.getLoc(), value, variable.getSymName());
      return variable.getSymName();
    };
    struct Kept {
      StringRef scale, codes, transposed, transposedScales;
    };
    llvm::StringMap<Kept> kept; // key: the name of the weight
    for (Cast cast : castsOf(first))
      if (StringRef name = cast.load.getVariable(); !kept.contains(name)) {
        Kept &names = kept[name];
        names.codes = keep(name, "codes", cast.codes);
        names.scale = keep(name, "scale", cast.scale);
        if (cast.transposed)
          names.transposed = keep(name, "transposed", cast.transposed);
        if (cast.transposedScales)
          names.transposedScales = keep(name, "transposed_scale", cast.transposedScales);
        ++numKept;
      }
    auto read = [&](Value value, StringRef variable) {
      b.setInsertionPoint(value.getDefiningOp());
      value.replaceAllUsesWith(lm::LoadOp::create(b, value.getLoc(), value.getType(), variable));
    };
    auto readInstead = [&](Value transposed, StringRef variable) {
      if (!transposed || variable.empty())
        return;
      read(transposed, variable);
      transposed.getDefiningOp()->erase();
    };
    llvm::SetVector<Operation *> unread;
    for (func::FuncOp function : later)
      for (Cast cast : castsOf(function))
        if (const auto known = kept.find(cast.load.getVariable()); known != kept.end()) {
          readInstead(cast.transposed, known->second.transposed);
          readInstead(cast.transposedScales, known->second.transposedScales);
          read(cast.codes, known->second.codes);
          read(cast.scale, known->second.scale);
          // Another cast may have the same scale.
          unread.insert(cast.codes.getDefiningOp());
          unread.insert(cast.scale.getDefiningOp());
        }
    for (Operation *op : unread)
      op->erase();

    for (auto &[name, transpose] : transposesOf(first)) {
      const StringRef variable = keep(name, "transposed", transpose);
      ++numKept;
      for (func::FuncOp function : later)
        if (Value again = transposesOf(function).lookup(name)) {
          read(again, variable);
          again.getDefiningOp()->erase();
        }
    }
  }
};
} // namespace
