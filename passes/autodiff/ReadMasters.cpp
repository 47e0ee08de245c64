// lm-read-masters: casts weights to 8-bit floats without copies in the compute dtype. Passes.td
// shows an example.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace lmc {
#define GEN_PASS_DEF_READMASTERSPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {
struct ReadMastersPass : lmc::impl::ReadMastersPassBase<ReadMastersPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    llvm::MapVector<StringAttr, SmallVector<lm::LoadOp>> loads; // of each variable
    llvm::StringSet<> stored;
    module.walk([&](lm::LoadOp load) {
      loads[StringAttr::get(&getContext(), load.getVariable())].push_back(load);
    });
    module.walk([&](lm::StoreOp store) { stored.insert(store.getVariable()); });
    for (auto &[name, all] : loads) {
      auto copy = symbols.lookup<lm::VariableOp>(name);
      const bool onlyCasts = llvm::all_of(all, [](lm::LoadOp load) {
        return llvm::all_of(load->getUsers(), lm::castsToEightBits);
      });
      if (copy.getKind() != lm::VariableKind::ComputeCopy || !copy.getParameter() || !onlyCasts ||
          stored.contains(name.getValue()))
        continue;
      auto master = symbols.lookup<lm::VariableOp>(*copy.getParameter());
      for (lm::LoadOp load : all) {
        OpBuilder b(load);
        Value value = lm::LoadOp::create(b, load.getLoc(), master.getType(), master.getSymName());
        load.replaceAllUsesWith(
            lm::CastOp::create(b, load.getLoc(), load.getType(), value).getResult());
        load.erase();
      }
      copy.erase();
      ++numRead;
    }
  }
};
} // namespace
