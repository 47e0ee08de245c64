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
  lm::TransposeOp transposed; // null if nothing reads it
  StringRef suffix = "";      // of the names of what is kept

  std::string name() { return (load.getVariable() + suffix).str(); }
};

// Returns the casts of a function, whose scales come from the variables themselves.
SmallVector<Cast> castsOf(func::FuncOp function) {
  SmallVector<Cast> casts;
  auto add = [&](auto tiles, StringRef suffix) {
    if (lm::LoadOp load = loadOf(tiles.getX()))
      casts.push_back({load, tiles.getCodes(), tiles.getScales(), {}, suffix});
  };
  for (auto tiles : function.getBody().front().getOps<lm::QuantizeTilesOp>())
    add(tiles, "");
  for (auto tiles : function.getBody().front().getOps<lm::QuantizeTilesTransposedOp>())
    add(tiles, ".transposed");
  for (auto codes : function.getBody().front().getOps<lm::QuantizeOp>()) {
    lm::LoadOp load = loadOf(codes.getX());
    if (!load || !lm::hasOwnScale(codes))
      continue;
    Cast &cast = casts.emplace_back(Cast{load, codes, codes.getScale(), {}});
    for (Operation *user : codes->getUsers())
      if (auto transposed = dyn_cast<lm::TransposeOp>(user))
        cast.transposed = transposed;
  }
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
      StringRef scale, codes, transposed;
    };
    llvm::StringMap<Kept> kept; // key: the name of the weight
    for (Cast cast : castsOf(first))
      if (!kept.contains(cast.name())) {
        Kept &names = kept[cast.name()];
        names.codes = keep(cast.name(), "codes", cast.codes);
        names.scale = keep(cast.name(), "scale", cast.scale);
        if (cast.transposed)
          names.transposed = keep(cast.name(), "transposed", cast.transposed);
        ++numKept;
      }
    auto read = [&](Value value, StringRef variable) {
      b.setInsertionPoint(value.getDefiningOp());
      value.replaceAllUsesWith(lm::LoadOp::create(b, value.getLoc(), value.getType(), variable));
    };
    llvm::SetVector<Operation *> unread;
    for (func::FuncOp function : later)
      for (Cast cast : castsOf(function))
        if (const auto known = kept.find(cast.name()); known != kept.end()) {
          if (cast.transposed && !known->second.transposed.empty()) {
            read(cast.transposed, known->second.transposed);
            cast.transposed.erase();
          }
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
