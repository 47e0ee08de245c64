// lm-analyze-recompute: finds the recompute options of each layer. Passes.td shows their form.
//
// The forward half of a layer becomes a BlockRecomputeProblem: its ops with their costs, its values
// with their bytes, and the values that the backward half reads. A named mode ("block") may
// recompute only certain ops. The mode's option is its solution with the fewest kept bytes. The
// other options are solutions on the lower convex hull of the points (kept bytes, seconds).
#include "passes/memory/Passes.h"

#include "compiler/algorithms/BlockRecompute.h"
#include "dialects/lm/Lm.h"
#include "passes/memory/LayerHalves.h"
#include "passes/memory/RecomputeOptions.h"

namespace lmc {
#define GEN_PASS_DEF_ANALYZERECOMPUTEPASS
#include "passes/memory/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// Returns true if the MLP's activation reads the op's result, directly or through a view.
bool feedsActivation(Operation *op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) {
    return user->hasTrait<lm::MlpActivation>() || (isView(user) && feedsActivation(user));
  });
}

// Mode "activation" allows recomputing the activation and the norms. These are free to recompute,
// and every mode allows ops that are free to recompute, so "activation" equals "none".
bool mayRunAgain(Operation *op, StringRef mode) {
  if (mode == "block" || isFreeToRecompute(op))
    return true;
  // Codes of what "full" recomputes, or keeps in the compute dtype for it, are made again, too.
  return mode == "full" &&
         (isa<lm::QuantizeWholeRowsOp>(op) ||
          (isa<lm::LinearOp, lm::MatmulOp, lm::ScaledMatmulOp>(op) && feedsActivation(op)));
}

std::string nameOf(Operation *op) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? name.getName().str() : op->getName().getStringRef().str();
}

class LayerAnalysis {
public:
  LayerAnalysis(func::FuncOp layer, func::FuncOp forward, OpCost cost)
      : layer(layer), forward(forward), layerResults(layer.getNumResults()) {
    Block &body = forward.getBody().front();
    OperandRange returned = body.getTerminator()->getOperands();
    llvm::SmallPtrSet<Value, 4> atHand(body.args_begin(), body.args_end());
    llvm::SmallPtrSet<Value, 8> ofCodes;
    atHand.insert(returned.begin(), returned.begin() + layerResults);
    auto add = [&](Value value, BlockRecomputeProblem::Value entry) {
      ids[value] = int(problem.values.size());
      problem.values.push_back(entry);
    };
    for (Value argument : body.getArguments())
      add(argument, {});
    for (Operation &op : body.without_terminator()) {
      BlockRecomputeProblem::Op entry;
      llvm::SmallSetVector<Value, 8> reads(op.operand_begin(), op.operand_end());
      for (Value operand : reads)
        entry.reads.push_back(ids.lookup(operand));
      // An op that is free to recompute gets the cost 0, so that the solution recomputes it
      // wherever that saves bytes. The vector `seconds` has the op's real cost.
      seconds.push_back(cost(&op));
      entry.seconds = isFreeToRecompute(&op) ? 0 : seconds.back();
      // What is made of codes is never kept, because the codes are no larger, and making it in the
      // forward pass takes as long. So each option makes it again, and its time does not matter.
      const bool isOfCodes =
          isa<lm::DequantizeOp>(op) ||
          (isFreeToRecompute(&op) && llvm::any_of(op.getOperands(), [&](Value operand) {
             return ofCodes.contains(operand);
           }));
      if (isOfCodes) {
        seconds.back() = 0;
        ofCodes.insert(op.result_begin(), op.result_end());
      }
      entry.allowed = mayRecompute(&op);
      for (Value result : op.getResults()) {
        Value viewed = viewedValue(result);
        if (atHand.contains(result))
          add(result, {});
        else
          add(result, {atHand.contains(viewed) ? 0 : bytesOf(viewed), int(ops.size())});
      }
      problem.ops.push_back(std::move(entry));
      ops.push_back(&op);
    }
    llvm::SetVector<Value> needed;
    for (Value value : returned.drop_front(layerResults))
      if (!atHand.contains(value))
        needed.insert(value);
    for (Value value : needed)
      problem.needed.push_back(ids.lookup(value));
  }

  FailureOr<RecomputeKind> run() {
    RecomputeKind kind;
    kind.layer = layer.getSymName().str();
    for (Operation *op : ops)
      kind.forwardFlops += forwardFlops(op);
    std::vector<BlockRecomputeOption> hull;
    for (StringRef mode : kRecomputeModes) {
      FailureOr<std::vector<BlockRecomputeOption>> found = solve(mode);
      if (failed(found))
        return failure();
      kind.options.push_back(describe(mode.str(), found->back()));
      hull = std::move(*found); // the last mode, "block", allows every op
    }
    uint64_t mostBytes = kind.options.front().keptBytes;
    for (const BlockRecomputeOption &point : hull) {
      RecomputeOption option = describe(
          "hull" + std::to_string(kind.options.size() - std::size(kRecomputeModes) + 1), point);
      bool known = llvm::any_of(kind.options, [&](const RecomputeOption &other) {
        return other.keptBytes <= option.keptBytes && other.seconds <= option.seconds;
      });
      if (!known && option.keptBytes < mostBytes)
        kind.options.push_back(std::move(option));
    }
    // Even ops that are free to recompute take some time. Options that keep their values save it.
    FailureOr<std::vector<BlockRecomputeOption>> kept = solve("none", /*freeOpsCost=*/true);
    if (failed(kept))
      return failure();
    size_t keeps = 0;
    for (const BlockRecomputeOption &point : *kept) {
      RecomputeOption option = describe("keep" + std::to_string(keeps + 1), point);
      if (option.keptBytes <= mostBytes || option.seconds >= kind.options.front().seconds)
        continue;
      kind.options.push_back(std::move(option));
      ++keeps;
    }
    return kind;
  }

private:
  // Returns the solutions that recompute only ops that `mode` allows. The last solution keeps the
  // fewest bytes. Ops that are free to recompute cost 0 or, with `freeOpsCost`, their real seconds.
  FailureOr<std::vector<BlockRecomputeOption>> solve(StringRef mode, bool freeOpsCost = false) {
    BlockRecomputeProblem restricted = problem;
    for (auto [op, entry, cost] : llvm::zip_equal(ops, restricted.ops, seconds)) {
      entry.allowed &= mayRunAgain(op, mode);
      if (freeOpsCost)
        entry.seconds = cost;
    }
    if (Result<void> sound = restricted.check(); !sound)
      return forward.emitError("cannot be analysed for recompute: ") << sound.error().message;
    std::vector<BlockRecomputeOption> found = blockRecomputeOptions(restricted);
    for (const BlockRecomputeOption &option : found)
      if (Result<void> right = option.verify(restricted); !right)
        return forward.emitError("got a wrong recompute option: ") << right.error().message;
    return found;
  }

  RecomputeOption describe(std::string name, const BlockRecomputeOption &found) {
    SmallVector<Operation *> chosen;
    for (int index : found.recomputed)
      chosen.push_back(ops[size_t(index)]);
    RecomputePlan plan = planRecompute(forward, layerResults, chosen);
    RecomputeOption option;
    option.name = std::move(name);
    option.keptBytes = keptBytes(forward, layerResults, plan);
    for (auto [index, op] : llvm::enumerate(ops))
      if (plan.recomputed.contains(op)) {
        option.recomputed.push_back(int64_t(index));
        option.ops.push_back(nameOf(op));
        option.seconds += seconds[index];
        option.flops += forwardFlops(op);
      }
    return option;
  }

  func::FuncOp layer, forward;
  unsigned layerResults;
  BlockRecomputeProblem problem;
  SmallVector<Operation *> ops;
  SmallVector<double> seconds; // cost of each op
  llvm::DenseMap<Value, int> ids;
};

struct AnalyzeRecomputePass : lmc::impl::AnalyzeRecomputePassBase<AnalyzeRecomputePass> {
  using AnalyzeRecomputePassBase::AnalyzeRecomputePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!(flopsPerSecond > 0) || !(bytesPerSecond > 0)) {
      module.emitError("needs positive flops-per-second and bytes-per-second to price recompute");
      return signalPassFailure();
    }
    FailureOr<RecomputeOptions> options = analyzeRecompute(module, [&](Operation *op) {
      return modelledSeconds(op, {flopsPerSecond, bytesPerSecond, 0});
    });
    if (failed(options))
      return signalPassFailure();
    writeRecomputeOptions(module, *options);
  }
};
} // namespace

FailureOr<RecomputeOptions> lmc::analyzeRecompute(ModuleOp module, OpCost cost) {
  SymbolTable symbols(module);
  FailureOr<SmallVector<func::FuncOp>> layers = layersInOrder(module, symbols);
  if (failed(layers))
    return failure();
  RecomputeOptions options;
  llvm::DenseMap<Operation *, int64_t> kindOf;
  for (func::FuncOp forward : *layers) {
    auto [it, inserted] = kindOf.try_emplace(forward, int64_t(options.kinds.size()));
    options.layers.push_back(it->second);
    if (!inserted)
      continue;
    FailureOr<RecomputeKind> kind = LayerAnalysis(layerOf(forward, symbols), forward, cost).run();
    if (failed(kind))
      return failure();
    options.kinds.push_back(std::move(*kind));
  }
  return options;
}
