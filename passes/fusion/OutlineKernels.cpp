// kern-outline-kernels: creates one kern.kernel for all fusions with the same hero and region, and
// replaces each of these fusions by a launch of the kernel.
#include "passes/fusion/Passes.h"
#include "passes/fusion/queue/MergeRegions.h"

#include "dialects/kern/Kern.h"

#include "mlir/IR/SymbolTable.h"

namespace lmc {
#define GEN_PASS_DEF_OUTLINEKERNELSPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {
struct OutlineKernelsPass : lmc::impl::OutlineKernelsPassBase<OutlineKernelsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    llvm::StringMap<kern::KernelOp> kernels;
    OpBuilder b(module);
    SmallVector<kern::FusionOp> fusions;
    module.walk([&](kern::FusionOp fusion) { fusions.push_back(fusion); });
    for (kern::FusionOp fusion : fusions) {
      SmallVector<Type> resultTypes(fusion.getResultTypes());
      kern::KernelOp &kernel = kernels[fingerprint(fusion.getHero(), fusion.getBody().front())];
      if (!kernel) {
        b.setInsertionPointToEnd(module.getBody());
        std::string name = kern::unusedName(symbols, kernelName(fusion.getSourceOpsAttr()));
        kernel = kern::KernelOp::create(b, fusion.getLoc(), name, fusion.getHero(),
                                        fusion.getSourceOpsAttr(),
                                        DenseI64ArrayAttr(), DenseI64ArrayAttr());
        kernel.getBody().takeBody(fusion.getBody());
        symbols.insert(kernel);
        ++numKernels;
      }
      b.setInsertionPoint(fusion);
      auto launch = kern::LaunchOp::create(b, fusion.getLoc(), resultTypes,
                                           kernel.getSymName(), fusion.getInputs());
      setStep(launch, fusion);
      fusion.replaceAllUsesWith(launch);
      fusion.erase();
    }
  }
};
} // namespace
