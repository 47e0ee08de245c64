// kern-merge-launches: merges kernel launches of neighbouring layers, by the rules of
// kern-form-fusions. Passes.td shows an example.
#include "passes/fusion/Passes.h"
#include "passes/fusion/queue/FusionQueue.h"

#include "mlir/IR/SymbolTable.h"

#include <map>

namespace lmc {
#define GEN_PASS_DEF_MERGELAUNCHESPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// Holds the kernels of merged launches. A kernel that several layers launch is created once.
class MergedKernels {
public:
  explicit MergedKernels(ModuleOp module) : module(module), symbols(module) {
    for (auto kernel : module.getOps<kern::KernelOp>())
      known.try_emplace(fingerprint(kernel.getHero(), kernel.getBody().front()), kernel);
  }

  std::optional<FusionPart> partOf(Operation *op) {
    auto launch = dyn_cast<kern::LaunchOp>(op);
    if (!launch)
      return std::nullopt;
    auto kernel = symbols.lookup<kern::KernelOp>(launch.getKernel());
    return FusionPart{launch, kernel.getHero(), &kernel.getBody().front(),
                      kernel.getSourceOpsAttr()};
  }

  llvm::Expected<Operation *> createLaunch(OpBuilder &b, const MergePlan &plan,
                                           const FusionPart &first, const FusionPart &second) {
    auto nameOf = [](const FusionPart &part) { return cast<kern::LaunchOp>(part.op).getKernel(); };
    auto [found, isNew] = outcomes.try_emplace({nameOf(first), nameOf(second), plan.wiring});
    Outcome &outcome = found->second;
    if (isNew)
      outcome = merge(plan, first, second);
    if (!outcome.kernel)
      return llvm::createStringError(Twine(outcome.reason));
    return kern::LaunchOp::create(b, second.op->getLoc(), ValueRange(plan.results).getTypes(),
                                  outcome.kernel.getSymName(), plan.inputs)
        .getOperation();
  }

  void eraseUnused() {
    llvm::DenseSet<StringRef> used;
    module.walk([&](kern::LaunchOp launch) { used.insert(launch.getKernel()); });
    for (auto kernel : llvm::make_early_inc_range(module.getOps<kern::KernelOp>()))
      if (!used.contains(kernel.getSymName()))
        symbols.erase(kernel);
  }

  unsigned made = 0;

private:
  struct Outcome {
    kern::KernelOp kernel; // null if the kernel's loop structure (hero) cannot compute the region
    std::string reason;
  };
  // The names of two kernels, and MergePlan::wiring, which says how the merge connects them.
  using Pair = std::tuple<StringRef, StringRef, SmallVector<int64_t>>;

  Outcome merge(const MergePlan &plan, const FusionPart &first, const FusionPart &second) {
    ArrayAttr sources = mergedSources(module.getContext(), first, second);
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    auto kernel = kern::KernelOp::create(b, second.op->getLoc(), kernelName(sources), plan.hero,
                                         sources, DenseI64ArrayAttr(), DenseI64ArrayAttr());
    if (llvm::Error error = buildMerged(plan, first, second, kernel))
      return {{}, llvm::toString(std::move(error))};
    auto [same, isNew] =
        known.try_emplace(fingerprint(plan.hero, kernel.getBody().front()), kernel);
    if (isNew) {
      kernel.setSymName(kern::unusedName(symbols, kernelName(sources)));
      symbols.insert(kernel);
    } else {
      kernel.erase();
    }
    made += isNew;
    return {same->second, ""};
  }

  ModuleOp module;
  SymbolTable symbols;
  std::map<Pair, Outcome> outcomes;
  llvm::StringMap<kern::KernelOp> known; // by fingerprint
};

struct MergeLaunchesPass : lmc::impl::MergeLaunchesPassBase<MergeLaunchesPass> {
  using MergeLaunchesPassBase::MergeLaunchesPassBase;

  void runOnOperation() override {
    FailureOr<FusionOptions> options =
        fusionOptions(getOperation(), *disable, bytesPerSecond, launchSeconds);
    if (failed(options))
      return signalPassFailure();
    if (!options->layers)
      return;
    MergedKernels kernels(getOperation());
    FusionReport made;
    auto partOf = [&](Operation *op) { return kernels.partOf(op); };
    auto create = [&](OpBuilder &b, const MergePlan &plan, const FusionPart &first,
                      const FusionPart &second) {
      return kernels.createLaunch(b, plan, first, second);
    };
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      FusionQueue queue(function, *options, {partOf, create});
      numFormed += queue.run();
      llvm::append_range(made, queue.report());
    }
    kernels.eraseUnused();
    numKernels += kernels.made;
    if (printReport)
      print(made, llvm::outs());
    if (report)
      llvm::append_range(*report, made);
  }

  FusionReport *report = nullptr;
};
} // namespace

std::unique_ptr<Pass> lmc::createMergeLaunchesPass(MergeLaunchesPassOptions options,
                                                   FusionReport &report) {
  auto pass = std::make_unique<MergeLaunchesPass>(std::move(options));
  pass->report = &report;
  return pass;
}
