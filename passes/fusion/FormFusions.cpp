// kern-form-fusions: merges two fusions if one reads a result of the other, or if both read the
// same tensor. Passes.td shows an example.
#include "passes/fusion/Passes.h"
#include "passes/fusion/queue/FusionQueue.h"

#include "passes/memory/OpCost.h"

namespace lmc {
#define GEN_PASS_DEF_FORMFUSIONSPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

static std::optional<FusionPart> partOfFusion(Operation *op) {
  auto fusion = dyn_cast<kern::FusionOp>(op);
  if (!fusion)
    return std::nullopt;
  return FusionPart{fusion, fusion.getHero(), &fusion.getBody().front(), fusion.getSourceOpsAttr()};
}

static llvm::Expected<Operation *> createFusion(OpBuilder &b, const MergePlan &plan,
                                                const FusionPart &first, const FusionPart &second) {
  auto merged =
      kern::FusionOp::create(b, second.op->getLoc(), ValueRange(plan.results).getTypes(), plan.hero,
                             plan.inputs, mergedSources(b.getContext(), first, second));
  if (llvm::Error error = buildMerged(plan, first, second, merged))
    return error;
  return merged.getOperation();
}

// If every call passes the same value for two arguments, makes all ops read the first argument. Ops
// are known to read the same bytes only if they read the same value.
static void mergeEqualArguments(func::FuncOp function, ArrayRef<func::CallOp> calls) {
  Block &body = function.getBody().front();
  auto equal = [&](unsigned i, unsigned j) {
    return llvm::all_of(
        calls, [&](func::CallOp call) { return call.getOperand(i) == call.getOperand(j); });
  };
  for (unsigned i = 0; i < body.getNumArguments() && !calls.empty(); ++i)
    for (unsigned j = i + 1; j < body.getNumArguments(); ++j)
      if (equal(i, j))
        body.getArgument(j).replaceAllUsesWith(body.getArgument(i));
}

// Merges equal views of one tensor, so that ops that read the same bytes read one value.
static void mergeEqualViews(Block &block) {
  llvm::DenseMap<Value, SmallVector<Operation *>> viewsOf;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!isView(&op))
      continue;
    SmallVector<Operation *> &known = viewsOf[op.getOperand(0)];
    auto *same = llvm::find_if(known, [&](Operation *view) {
      return OperationEquivalence::isEquivalentTo(view, &op,
                                                  OperationEquivalence::IgnoreLocations |
                                                      OperationEquivalence::IgnoreDiscardableAttrs);
    });
    if (same == known.end()) {
      known.push_back(&op);
      continue;
    }
    op.replaceAllUsesWith(*same);
    op.erase();
  }
}

namespace {
struct FormFusionsPass : lmc::impl::FormFusionsPassBase<FormFusionsPass> {
  using FormFusionsPassBase::FormFusionsPassBase;

  void runOnOperation() override {
    FailureOr<FusionOptions> options =
        fusionOptions(getOperation(), *disable, bytesPerSecond, launchSeconds);
    if (failed(options))
      return signalPassFailure();
    llvm::StringMap<SmallVector<func::CallOp>> calls;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        mergeEqualViews(function.getBody().front());
    getOperation().walk([&](func::CallOp call) { calls[call.getCallee()].push_back(call); });
    FusionReport made;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      mergeEqualArguments(function, calls[function.getSymName()]);
      mergeEqualViews(function.getBody().front());
      FusionQueue queue(function, *options, {partOfFusion, createFusion});
      numFormed += queue.run();
      llvm::append_range(made, queue.report());
    }
    if (printReport)
      print(made, llvm::outs());
    if (report)
      llvm::append_range(*report, made);
  }

  FusionReport *report = nullptr;
};
} // namespace

std::unique_ptr<Pass> lmc::createFormFusionsPass(FormFusionsPassOptions options,
                                                 FusionReport &report) {
  auto pass = std::make_unique<FormFusionsPass>(std::move(options));
  pass->report = &report;
  return pass;
}
