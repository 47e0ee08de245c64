#include "compiler/phases/Phases.h"

#include "compiler/kernels/Target.h"
#include "dialects/plan/Plan.h"
#include "passes/autodiff/Passes.h"
#include "passes/buffers/Passes.h"
#include "passes/distribute/Passes.h"
#include "passes/fusion/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/memory/RecomputeOptions.h"
#include "passes/schedule/Passes.h"

#include "mlir/IR/Verifier.h"
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

// RecomputeMode number i means that every layer takes option i (for all modes before Auto).
static_assert(size_t(RecomputeMode::Auto) == std::size(kRecomputeModes));

llvm::StringRef lmc::recomputeModeName(RecomputeMode mode) {
  if (mode == RecomputeMode::KeepAll)
    return kKeepAll;
  // With Auto, an attribute of the module states the chosen option of each layer.
  return kRecomputeModes[mode == RecomputeMode::Auto ? 0 : size_t(mode)];
}

// Kinds of fusion that a compiler pass performs before the fusion phase.
static constexpr StringRef kMergedLinears = "linears", kFlatState = "state";

// Returns true if targets' own compiler passes perform this kind of fusion. A job may disable it
// even if its target lacks it.
static bool isKindOfTargets(StringRef kind) {
  return llvm::any_of(codegen::targets(), [&](const codegen::Target *target) {
    return llvm::is_contained(target->fusionKinds(), kind);
  });
}

PhaseRunner::PhaseRunner(const Config &config, const CompileOptions &options)
    : config(config), options(options) {
  if (auto spec = cost::deviceSpecOf(config.target, config.directory)) {
    rates = cost::ratesOf(&*spec, config.training.computeDType);
    gemmWorkspaceBytes = spec->gemmWorkspaceBytes;
    costModel = codegen::costModelOf(config.target.device, *spec);
  }
  padding = paddingOf(config, costModel.get());
}

static ShardStatePassOptions shardingOf(const Config &config) {
  const DistributedConfig &distributed = config.distributed;
  ShardStatePassOptions options;
  options.replicate = distributed.replicateRanks();
  options.shard = distributed.shardRanks();
  options.stage = options.shard == 1               ? "none"
                  : distributed.dividesWeights()   ? "weights"
                  : distributed.dividesGradients() ? "gradients"
                                                   : "optimizer";
  // With one micro-step, "each" moves as many bytes as "last" and needs less memory.
  const bool isEach = distributed.reduce == "each" || distributed.choosesReduce() ||
                      config.training.gradientAccumulationSteps == 1;
  options.reduce = isEach ? "each" : "last";
  options.optimizer = config.optimizer.type;
  options.payload = distributed.reduceDType;
  return options;
}

// Returns the attributes of the optimizer's op, as lm-insert-optimizer takes them.
static std::string optimizerAttributes(const Config &config) {
  const OptimizerConfig &optimizer = config.optimizer;
  if (optimizer.type != "muon")
    return "";
  // The default of ns_dtype is the dtype of the parameters.
  const bool isRounded =
      optimizer.muonNsDType == "bf16" && config.training.computeDType != DataType::F64;
  return llvm::formatv("nesterov = {0}, ns_steps = {1} : i64, "
                       "ns_coefficients = array<f64: {2:e17}, {3:e17}, {4:e17}>, "
                       "adjust_lr_fn = #lm.adjust_lr<{5}>{6}",
                       optimizer.muonNesterov ? "true" : "false", optimizer.muonNsSteps,
                       optimizer.muonNsA, optimizer.muonNsB, optimizer.muonNsC,
                       optimizer.muonAdjustLrFn, isRounded ? ", ns_dtype = bf16" : "");
}

// Returns the group of ranks that divide the state between them: ranks with successive numbers.
static cost::Group shardGroupOf(const DistributedConfig &distributed) {
  const int64_t ranks = distributed.shardRanks(),
                together = std::min(distributed.devicesPerNode, ranks);
  return {together, (ranks + together - 1) / together};
}

static OverlapPassOptions overlapOf(const DistributedConfig &distributed) {
  const bool isOn = distributed.overlap != "no";
  return {.gathers = isOn, .reductions = isOn && distributed.overlap != "gathers"};
}

// Adds the compiler passes of a phase. If `checks` is false, omits passes that only check. The
// comments below explain only why the passes have this order.
void PhaseRunner::addPasses(Phase phase, bool checks, FusionReport &fusions, PassManager &passes) {
  auto isOn = [&](StringRef kind) { return !llvm::is_contained(options.disableFusion, kind); };
  const codegen::Target &target = *codegen::findTarget(config.target.device);
  SmallVector<std::string> without; // kinds of fusion that passes/fusion must not perform
  for (const std::string &kind : options.disableFusion)
    if (kind != kMergedLinears && kind != kFlatState && !isKindOfTargets(kind))
      without.push_back(kind);
  switch (phase) {
  case Phase::Autodiff:
    if (padding.vocabulary.isPadded())
      passes.addPass(
          createPadVocabularyPass(PadVocabularyPassOptions{padding.vocabulary.multiple}));
    // Padding adds rows at the end of each matrix, so it comes before matrices are merged.
    if (padding.intermediate.isPadded())
      passes.addPass(
          createPadIntermediatePass(PadIntermediatePassOptions{padding.intermediate.multiple}));
    // Merging comes before differentiation, so that gradients and optimizer state are merged too.
    if (isOn(kMergedLinears))
      passes.addPass(createMergeLinearsPass(
          MergeLinearsPassOptions{rates.bytesPerSecond, rates.launchSeconds}, fusions));
    // Experts are divided before differentiation, so that the exchange is also differentiated.
    if (config.distributed.expertParallel > 1)
      passes.addPass(createParallelExpertsPass(ParallelExpertsPassOptions{
          config.distributed.replicateRanks(), config.distributed.shardRanks(),
          config.distributed.expertParallel, config.distributed.expertCapacity}));
    // Products that are one are cast together; the gradients of casts follow from the ops.
    if (config.training.fp8 != "none")
      passes.addPass(createQuantizeLinearsPass({config.training.fp8 == "block"}));
    passes.addPass(createAutodiffPass());
    if (config.memory.store == "fp8")
      passes.addPass(createStoreCodesPass());
    // If ranks divide weights or state, copies of the weights travel between them.
    if (config.training.fp8 != "none" && config.distributed.shardRanks() == 1)
      passes.addPass(createReadMastersPass());
    // Each rank gets its pieces of the parameters first. So the optimizer sees only these pieces.
    passes.addPass(createShardStatePass(shardingOf(config)));
    // Gradients can accumulate only after differentiation has created them.
    passes.addPass(createAccumulateGradientsPass(
        AccumulateGradientsPassOptions{config.training.gradientAccumulationSteps}));
    passes.addPass(createReduceGradientsPass(
        ReduceGradientsPassOptions{config.distributed.reduceDType}));
    passes.addPass(createInsertOptimizerPass({config.optimizer.type, optimizerAttributes(config)}));
    if (isOn(kFlatState))
      passes.addPass(createFlattenStatePass());
    if (config.training.fp8 != "none") {
      if (target.needsRowsOfK())
        passes.addPass(createTransposeCodesPass());
      // What is kept must exist.
      passes.addPass(createKeepCodesPass());
    }
    // Merges equal values only here: from the memory phase on, some are recomputed on purpose.
    passes.addPass(createCSEPass());
    break;
  case Phase::Distribute:
    passes.addPass(createSyncOptimizerPass());
    // This pass needs each rank's pieces of parameters. It also needs the gradient norm of all
    // ranks: a step is skipped if this norm is not finite.
    passes.addPass(createExpandMuonPass({config.optimizer.muonOwners}, costModel.get(),
                                        shardGroupOf(config.distributed)));
    if (checks)
      passes.addPass(createCheckReductionsPass());
    break;
  case Phase::Memory:
    passes.addPass(createApplyRecomputePass(ApplyRecomputePassOptions{
        recomputeModeName(config.memory.recompute).str(), config.memory.recomputeStride}));
    passes.addPass(createRegatherPass(RegatherPassOptions{
        config.distributed.reshardAfterForward == "no" ? config.model.numHiddenLayers : 0}));
    break;
  case Phase::Fusion:
    // Recompute options name ops of the model. So these passes come after the memory phase.
    target.addModelPasses(passes, config.target.device, isOn);
    passes.addPass(createConvertLmPass());
    passes.addPass(createFormFusionsPass(
        {without, rates.bytesPerSecond, rates.launchSeconds}, fusions));
    target.addFusionPasses(passes);
    // Outlining comes before inlining, so it compares the kernels of a layer function only once.
    passes.addPass(createOutlineKernelsPass());
    break;
  case Phase::Schedule:
    passes.addPass(createInlineLayersPass());
    // Only inlining puts the end of one layer next to the start of the next.
    passes.addPass(createMergeLaunchesPass(
        {without, rates.bytesPerSecond, rates.launchSeconds}, fusions));
    // Each function is now one list of launches, so it is known what can run beside a collective.
    passes.addPass(createOverlapPass(overlapOf(config.distributed)));
    break;
  case Phase::Buffers:
    passes.addPass(createAssignBuffersPass(
        {options.reuseMemory, target.name().str(), gemmWorkspaceBytes, /*attach=*/checks}));
    // Packing needs the buffers of all functions, because the functions share the arenas.
    passes.addPass(createPackArenasPass({options.reuseMemory, target.bufferAlignment()}));
    // The commands need the buffers' offsets, which the previous pass chose.
    passes.addPass(createEmitCommandsPass(EmitCommandsPassOptions{/*keepTensors=*/checks}));
    // The check compares a function's tensors with its commands. Only here the IR has both.
    if (checks)
      passes.addPass(createCheckAliasingPass());
    break;
  case Phase::Model: // buildModel() runs this phase
  case Phase::Codegen:
  case Phase::Emit: // these phases read the plan and have no passes
    break;
  }
}

LogicalResult PhaseRunner::run(Phase phase, ModuleOp module, PhaseUse use) {
  const bool checks = use != PhaseUse::Probe && !options.onlyMeasures;
  return run(phase, [&]() -> LogicalResult {
    PassManager passes(module.getContext(), ModuleOp::getOperationName());
    if (!options.printIrAfter.empty() && use == PhaseUse::Plan)
      passes.enableIRPrinting(
          [](Pass *, Operation *) { return false; },
          [this](Pass *pass, Operation *) {
            return llvm::is_contained(options.printIrAfter, pass->getArgument());
          },
          /*printModuleScope=*/true);
    FusionReport fusions;
    addPasses(phase, checks, fusions, passes);
    // The verifiers run once per phase. After every pass, they would take as long as the passes.
    passes.enableVerifier(false);
    if (failed(passes.run(module)) ||
        (checks && (failed(verify(module)) || failed(verifyLevel(phase, module)))))
      return failure();
    if (phase == Phase::Autodiff && checks)
      linearFusions = fusions;
    if (phase == Phase::Fusion && use != PhaseUse::Probe)
      reports["fusion"] = nullptr;
    if (checks && phase == Phase::Fusion)
      addNotes(linearFusions, reports["fusion"]);
    if (checks && (phase == Phase::Fusion || phase == Phase::Schedule))
      addNotes(fusions, reports["fusion"]);
    return use == PhaseUse::Plan ? dump(phase, module, fusions) : success();
  });
}

LogicalResult PhaseRunner::run(Phase phase, llvm::function_ref<LogicalResult()> work) {
  auto start = std::chrono::steady_clock::now();
  if (failed(work()))
    return failure();
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::lock_guard guard(timesMutex);
  for (PhaseTime &known : times)
    if (known.phase == phase) {
      known.seconds += elapsed.count();
      return success();
    }
  times.push_back({phase, elapsed.count()});
  return success();
}

// Writes `content` to a file such as "DIRECTORY/05.fusion.EXTENSION", named after the phase.
static LogicalResult writeDump(const std::string &directory, Phase phase, StringRef extension,
                               StringRef content, Location loc) {
  std::string path = llvm::formatv("{0}/{1:d2}.{2}.{3}", directory, int(phase) + 1,
                                   phaseName(phase), extension);
  std::error_code error;
  llvm::ToolOutputFile file(path, error, llvm::sys::fs::OF_Text);
  if (error)
    return emitError(loc) << "cannot write " << path << ": " << error.message();
  file.os() << content;
  file.keep();
  return success();
}

// Prints the module with the names of ops, `loc("mlp")`, but without unknown locations.
static std::string textOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, OpPrintingFlags()
                            .enableDebugInfo(true, /*prettyForm=*/false)
                            .useLocalScope());
  const StringRef unknown = " loc(unknown)";
  std::string named;
  for (StringRef rest = text; !rest.empty();) {
    auto [before, after] = rest.split(unknown);
    named += before;
    rest = after;
  }
  return named;
}

LogicalResult PhaseRunner::dump(Phase phase, ModuleOp module, const FusionReport &fusions) {
  const std::string &directory = options.dumpDirectory;
  if (directory.empty())
    return success();
  Location loc = UnknownLoc::get(module.getContext());
  if (std::error_code error = llvm::sys::fs::create_directories(directory))
    return emitError(loc) << "cannot create " << directory << ": " << error.message();
  if (failed(writeDump(directory, phase, "mlir", textOf(module), loc)))
    return failure();
  return writeDump(directory, phase, "txt", phaseTable(phase, module, reports, fusions), loc);
}

uint64_t lmc::plannedBytes(ModuleOp module) {
  uint64_t bytes = 0;
  for (auto arena : module.getOps<plan_ir::ArenaOp>())
    bytes += arena.getBytes();
  return bytes;
}
