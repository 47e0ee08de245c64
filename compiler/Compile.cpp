#include "compiler/Compile.h"

#include "compiler/codegen/CpuObject.h"
#include "compiler/emit/Emit.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"
#include "models/Model.h"
#include "passes/autodiff/Passes.h"
#include "passes/buffers/Passes.h"
#include "passes/codegen/Passes.h"
#include "passes/distribute/Passes.h"
#include "passes/fusion/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/schedule/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/ToolOutputFile.h"

#include <chrono>

using namespace mlir;
using namespace lmc;

static constexpr llvm::StringRef kPhaseNames[] = {"model",    "autodiff", "distribute",
                                                  "memory",   "fusion",   "schedule",
                                                  "buffers",  "codegen",  "emit"};

llvm::StringRef lmc::phaseName(Phase phase) { return kPhaseNames[size_t(phase)]; }

std::optional<Phase> lmc::parsePhase(llvm::StringRef name) {
  for (size_t i = 0; i < std::size(kPhaseNames); ++i)
    if (kPhaseNames[i] == name)
      return Phase(i);
  return std::nullopt;
}

namespace {

class Driver {
public:
  Driver(const Config &config, const CompileOptions &options, MLIRContext &context)
      : config(config), options(options), context(context) {}

  FailureOr<CompileResult> run(Phase from = Phase::Model);

  CompileResult result;

private:
  LogicalResult runPhase(Phase phase);
  void addPasses(Phase phase, PassManager &passes);
  LogicalResult dump(Phase phase);
  LogicalResult runTimed(Phase phase);
  LogicalResult planWithinBudget(Phase last);
  uint64_t plannedPeak();

  const Config &config;
  const CompileOptions &options;
  MLIRContext &context;
  codegen::CpuImage image;
  std::string recompute = "none"; // the mode of the attempt under way
};

} // namespace

// Why each pass stands where it does is said here; what it does, in its Passes.td.
void Driver::addPasses(Phase phase, PassManager &passes) {
  switch (phase) {
  case Phase::Model:
    break; // the builder's work
  case Phase::Autodiff:
    passes.addPass(createAutodiffPass());
    // After differentiation, because it is contributions to gradients that accumulate.
    passes.addPass(createAccumulateGradientsPass(
        AccumulateGradientsPassOptions{config.training.gradientAccumulationSteps}));
    passes.addPass(createInsertOptimizerPass());
    // The last point at which equal values may be merged: from the memory phase on,
    // values computed twice are computed twice on purpose.
    passes.addPass(createCSEPass());
    break;
  case Phase::Distribute:
    passes.addPass(createShardStatePass(ShardStatePassOptions{
        config.distributed.nodes, config.distributed.devicesPerNode,
        config.distributed.strategy == ShardingStrategy::HybridShard}));
    break;
  case Phase::Memory:
    passes.addPass(createApplyRecomputePass(
        ApplyRecomputePassOptions{recompute, config.memory.recomputeStride}));
    break;
  case Phase::Fusion:
    passes.addPass(createConvertLmPass());
    passes.addPass(createFormFusionsPass());
    // Before layers are inlined, so that a layer's kernels are compared once.
    passes.addPass(createOutlineKernelsPass());
    break;
  case Phase::Schedule:
    passes.addPass(createInlineLayersPass());
    // A layer's end meets the next one's start only now.
    passes.addPass(createMergeLaunchesPass());
    break;
  case Phase::Buffers:
    passes.addPass(createPlaceBuffersPass());
    break;
  case Phase::Codegen:
  case Phase::Emit:
    break; // not passes over the plan: they read it
  }
}

LogicalResult Driver::dump(Phase phase) {
  if (options.dumpDirectory.empty() || phase > Phase::Buffers)
    return success();
  if (std::error_code error = llvm::sys::fs::create_directories(options.dumpDirectory))
    return emitError(UnknownLoc::get(&context))
           << "cannot create " << options.dumpDirectory << ": " << error.message();
  std::string path = llvm::formatv("{0}/{1:d2}.{2}.mlir", options.dumpDirectory,
                                   int(phase) + 1, phaseName(phase));
  std::error_code error;
  llvm::ToolOutputFile file(path, error, llvm::sys::fs::OF_Text);
  if (error)
    return emitError(UnknownLoc::get(&context))
           << "cannot write " << path << ": " << error.message();
  result.module->print(file.os(), OpPrintingFlags().enableDebugInfo(true, /*prettyForm=*/false).useLocalScope());
  file.keep();
  return success();
}

LogicalResult Driver::runPhase(Phase phase) {
  switch (phase) {
  case Phase::Model:
    result.module = buildModel(config, context);
    return result.module->verify();
  case Phase::Codegen: {
    // The code generator sees kernels only; how they are launched is not its matter.
    OwningOpRef<ModuleOp> kernels = ModuleOp::create(result.module->getLoc());
    for (auto kernel : result.module->getOps<kern::KernelOp>())
      kernels->push_back(kernel->clone());
    codegen::CpuTarget target;
    target.cpu = config.target.cpu;
    auto built = codegen::buildCpuImage(*kernels, target);
    if (!built)
      return emitError(UnknownLoc::get(&context))
             << "cannot generate code for " << config.target.cpu << ": "
             << llvm::toString(built.takeError());
    image = std::move(*built);
    return success();
  }
  case Phase::Emit:
    return emitPlan(*result.module, config, image, result.plan);
  default: {
    PassManager passes(&context, ModuleOp::getOperationName());
    if (!options.printIrAfter.empty())
      passes.enableIRPrinting(
          [](Pass *, Operation *) { return false; },
          [this](Pass *pass, Operation *) {
            return llvm::is_contained(options.printIrAfter, pass->getArgument());
          },
          /*printModuleScope=*/true);
    addPasses(phase, passes);
    return passes.run(*result.module);
  }
  }
}

LogicalResult Driver::runTimed(Phase phase) {
  auto start = std::chrono::steady_clock::now();
  if (failed(runPhase(phase)) || failed(dump(phase)))
    return failure();
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  for (PhaseTime &known : result.times)
    if (known.phase == phase) {
      known.seconds += elapsed.count(); // the phase ran in an earlier attempt too
      return success();
    }
  result.times.push_back({phase, elapsed.count()});
  return success();
}

// Bytes of all arenas.
uint64_t Driver::plannedPeak() {
  uint64_t bytes = 0;
  for (auto arena : result.module->getOps<plan_ir::ArenaOp>())
    bytes += arena.getBytes();
  return bytes;
}

// The recompute modes that the configuration allows, cheapest first.
static std::vector<std::string> recomputeModes(RecomputeMode mode) {
  switch (mode) {
  case RecomputeMode::None:
    return {"none"};
  case RecomputeMode::Activation:
    return {"activation"};
  case RecomputeMode::Full:
    return {"full"};
  case RecomputeMode::Block:
    return {"block"};
  case RecomputeMode::Auto:
    return {"none", "activation", "full", "block"};
  case RecomputeMode::KeepAll:
    return {"keep-all"};
  }
  return {};
}

// Memory to Buffers, once per recompute mode until the packed arenas fit the budget. When
// none does, the plan with the smallest peak is the result: it says what takes the memory.
LogicalResult Driver::planWithinBudget(Phase last) {
  std::vector<std::string> modes = recomputeModes(config.memory.recompute);
  bool judged = last >= Phase::Buffers && config.memory.budget > 0;
  OwningOpRef<ModuleOp> start = result.module->clone();
  OwningOpRef<ModuleOp> smallest;
  uint64_t smallestPeak = UINT64_MAX;
  for (const std::string &mode : modes) {
    recompute = mode;
    result.module = start->clone();
    for (Phase phase : {Phase::Memory, Phase::Fusion, Phase::Schedule, Phase::Buffers})
      if (phase <= last && failed(runTimed(phase)))
        return failure();
    if (!judged)
      return success();
    uint64_t peak = plannedPeak();
    if (peak <= config.memory.budget)
      return success();
    if (peak < smallestPeak) {
      smallestPeak = peak;
      smallest = std::move(result.module);
    }
  }
  result.module = std::move(smallest);
  return success();
}

FailureOr<CompileResult> Driver::run(Phase from) {
  for (Phase phase : {Phase::Model, Phase::Autodiff, Phase::Distribute})
    if (phase >= from && phase <= options.compileTo && failed(runTimed(phase)))
      return failure();
  if (from <= Phase::Memory && options.compileTo >= Phase::Memory &&
      failed(planWithinBudget(options.compileTo)))
    return failure();
  for (Phase phase : {Phase::Fusion, Phase::Schedule, Phase::Buffers})
    if (from > Phase::Memory && phase >= from && phase <= options.compileTo &&
        failed(runTimed(phase)))
      return failure();
  for (Phase phase : {Phase::Codegen, Phase::Emit})
    if (phase >= from && phase <= options.compileTo && failed(runTimed(phase)))
      return failure();
  return std::move(result);
}

FailureOr<CompileResult> lmc::compile(const Config &config, const CompileOptions &options,
                                      MLIRContext &context) {
  return Driver(config, options, context).run();
}

FailureOr<CompileResult> lmc::compileModule(OwningOpRef<ModuleOp> module, Phase from,
                                            const Config &config, const CompileOptions &options) {
  Driver driver(config, options, *module->getContext());
  driver.result.module = std::move(module);
  return driver.run(from);
}
