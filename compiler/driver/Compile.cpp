#include "compiler/driver/Compile.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Strategies.h"
#include "compiler/emit/Emit.h"
#include "compiler/kernels/Target.h"
#include "compiler/search/MicroBatchSearch.h"
#include "compiler/search/RecomputeNotes.h"
#include "compiler/search/RecomputeSearch.h"
#include "ground/config/SettingRules.h"
#include "ground/config/Values.h"
#include "ground/plan/TargetRules.h"
#include "models/decoder/Model.h"

#include "llvm/Support/FormatVariadic.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <tuple>

using namespace mlir;
using namespace lmc;

namespace {

constexpr double kAbsurdStep = 60; // a CPU's seconds per step above which lmc warns

std::string durationText(double seconds) {
  if (seconds < 7200)
    return llvm::formatv("{0:f0} minutes", seconds / 60).str();
  return llvm::formatv("{0:f1} hours", seconds / 3600).str();
}

// Compiles one job with one micro-batch size.
class Driver {
public:
  Driver(Config config, const CompileOptions &options, MLIRContext &context);

  // Runs the phases up to the buffers phase, or up to options.compileTo if it comes earlier.
  LogicalResult plan();

  // Runs the codegen and emit phases.
  LogicalResult finish();

  // Returns the predicted tokens per second of one device.
  FailureOr<double> tokensPerSecond();

  uint64_t peakBytes() const { return plannedBytes(*result.module); }

  CompileResult take() {
    result.times = std::move(phases.times);
    return std::move(result);
  }

  nlohmann::json &reports() { return phases.reports; }

  CompileResult result;

private:
  LogicalResult requireSpec(StringRef key);
  LogicalResult requireLinks();
  void describeLinks(const plan::Plan &plan);
  LogicalResult planFastest(StringRef key, ArrayRef<StringRef> values, std::string &setting,
                            llvm::function_ref<LogicalResult()> plan);
  LogicalResult planFromAutodiff();
  FailureOr<ModuleOp> shorterModel(int64_t layers);
  FailureOr<bool> isStateTooLarge();
  LogicalResult planMemory(ArrayRef<int64_t> chunkSizes);
  LogicalResult planNamedMode();
  LogicalResult searchMemory(ArrayRef<int64_t> chunkSizes);
  LogicalResult reportNamedMode();
  LogicalResult runUpTo(Phase from, Phase last);
  void price();
  LogicalResult report(llvm::Error error) {
    if (error)
      return emitError(loc()) << llvm::toString(std::move(error));
    return success();
  }

  // Returns the number of tokens of an optimizer step on one device.
  int64_t tokensPerStep() const {
    const TrainingConfig &training = config.training;
    return training.microBatchSize * training.gradientAccumulationSteps * training.sequenceLength;
  }

  Location loc() const { return UnknownLoc::get(&context); }
  bool wantsCode() const { return options.compileTo >= Phase::Codegen && options.withCode; }

  Config config; // the searches change "auto" settings in it, such as the chunk of the loss
  const CompileOptions &options;
  MLIRContext &context;
  PhaseRunner phases;
  PlanDetails details;
  bool choosesLossChunk = false;
  bool isAttempt = false;    // true if the plan may not be the final one: no dumps, no printed IR
  bool hasSmaller = false;   // true if a smaller plan will be tried when a plan does not fit
  double fastestRate = 0;    // tokens/s of the fastest plan that planFastest() has found so far
  // An upper bound of the tokens/s of all plans of the job. Set only if the job was not planned
  // because the bound is below `fastestRate`.
  std::optional<double> mostRate;
  // Models with fewer layers, after the distribute phase. Keys are the number of layers,
  // distributed.reduce and memory.lossChunk. The compiler tries several values of the last two.
  std::map<std::tuple<int64_t, std::string, int64_t>, OwningOpRef<ModuleOp>> shorter;
  Result<cost::DeviceSpec> spec;
  std::unique_ptr<cost::CostModel> model; // built from an empty spec if the job has none
  const codegen::Target *const target;    // null if no target has the job's device
};

} // namespace

Driver::Driver(Config job, const CompileOptions &options, MLIRContext &context)
    : config(std::move(job)), options(options), context(context), phases(config, options),
      spec(cost::deviceSpecOf(config.target, config.directory)),
      target(codegen::findTarget(config.target.device)) {
  result.budgetBytes = config.memory.budget;
  if (result.budgetBytes == 0 && spec)
    result.budgetBytes = cost::usableBytes(*spec);
  model = codegen::costModelOf(config.target.device, spec ? *spec : cost::DeviceSpec());
  details.memoryBudget = result.budgetBytes;
  details.target = config.target.device;
  // The peak FLOP/s of this machine are not stored, because they are measured where the plan runs.
  if (spec && !spec->host)
    details.peakFlops = spec->peakOf(config.training.computeDType);
  details.onlyMeasures = options.onlyMeasures;
  details.deviceSpec = config.target.spec;
  if (details.deviceSpec.empty())
    details.deviceSpec = cost::defaultDeviceSpec(config.target.device);
}

LogicalResult Driver::requireSpec(StringRef key) {
  if (spec)
    return success();
  return emitError(loc()) << key << " is \"auto\", but " << spec.error().message;
}

// Checks that the spec describes the links between the job's ranks.
LogicalResult Driver::requireLinks() {
  auto require = [&](const char *name, const cost::LinkModel &link, bool isUsed,
                     const std::string &use) -> LogicalResult {
    if (!isUsed || link.bandwidth > 0)
      return success();
    return emitError(loc()) << "device spec '" << spec->name << "' has no [link." << name
                            << "], and the job has " << use
                            << "; give a spec with such a link (target.spec, docs/devices.md)";
  };
  const DistributedConfig &distributed = config.distributed;
  if (failed(require("device", spec->deviceLink, distributed.devicesPerNode > 1,
                     std::to_string(distributed.devicesPerNode) + " devices per node")))
    return failure();
  return require("node", spec->nodeLink, distributed.nodes > 1,
                 std::to_string(distributed.nodes) + " nodes");
}

LogicalResult Driver::runUpTo(Phase from, Phase last) {
  for (int phase = int(from); phase <= int(std::min(last, options.compileTo)); ++phase)
    if (failed(phases.run(Phase(phase), *result.module,
                          isAttempt ? PhaseUse::Attempt : PhaseUse::Plan)))
      return failure();
  return success();
}

LogicalResult Driver::plan() {
  if (!target)
    return emitError(loc()) << "target.device is \"" << config.target.device << "\"; "
                            << codegen::checkDeviceName(config.target.device).error().message;
  if (config.training.fp8 != "none" && options.compileTo >= Phase::Codegen &&
      !target->multipliesEightBits(config.target.device, config.training.fp8))
    return emitError(loc()) << "training.fp8 is \"" << config.training.fp8
                            << "\", and a target.device of \"" << config.target.device
                            << "\" does not compute it; take \"none\", or a device that does: cpu, "
                               "a GPU from sm_89 on for \"tensor\", of sm_90 for \"block\"";
  if (config.memory.store == "fp8" && options.compileTo >= Phase::Codegen &&
      !target->multipliesEightBits(config.target.device, "tensor"))
    return emitError(loc()) << "memory.store is \"fp8\", and a target.device of \""
                            << config.target.device
                            << "\" has no 8-bit floats; take \"compute_dtype\", or a device that "
                               "has them: cpu, or a GPU from sm_89 on";
  if (spec && failed(requireLinks()))
    return failure();
  // This check precedes the phases, because they take long.
  if (wantsCode() && failed(report(target->checkDevice(config.target))))
    return failure();
  LogicalResult built = phases.run(Phase::Model, [&] {
    result.module = buildModel(config, context);
    if (failed(result.module->verify()) || failed(verifyLevel(Phase::Model, *result.module)) ||
        failed(phases.dump(Phase::Model, *result.module)))
      return failure();
    FailureOr<ModelCounts> counts = modelCounts(*result.module);
    if (succeeded(counts))
      details.counts = *counts;
    return LogicalResult(counts);
  });
  if (failed(built))
    return failure();
  if (phases.padding.vocabulary.isPadded())
    phases.reports["vocabulary"] = phases.padding.vocabulary.toJson();
  if (phases.padding.intermediate.isPadded())
    phases.reports["intermediate"] = phases.padding.intermediate.toJson();
  // The chunk of the loss is chosen by predicted times, which need a device spec.
  choosesLossChunk = config.memory.lossChunk == 0 && spec;
  // Only predicted times of whole plans show which value of distributed.reduce is faster.
  if (config.distributed.choosesReduce() && config.training.gradientAccumulationSteps > 1 && spec &&
      options.compileTo >= Phase::Buffers)
    // With "last", ranks sum their gradients only in the last micro-step. That moves the fewest
    // bytes, but each rank needs memory for all gradients of its own tokens until then.
    return planFastest("reduce_gradients", {"last", "each"}, config.distributed.reduce,
                       [&] { return planFromAutodiff(); });
  return planFromAutodiff();
}

// Plans the job from result.module, the graph of the model.
LogicalResult Driver::planFromAutodiff() {
  if (hasSmaller) {
    FailureOr<bool> isTooLarge = isStateTooLarge();
    if (failed(isTooLarge))
      return failure();
    if (*isTooLarge) {
      result.fits = false;
      return success();
    }
  }
  if (failed(runUpTo(Phase::Autodiff, Phase::Distribute)))
    return failure();
  if (options.compileTo < Phase::Memory)
    return success();
  std::vector<int64_t> sizes;
  if (choosesLossChunk)
    sizes = lossChunkSizes(*result.module);
  if (sizes.size() < 2) // nothing to choose
    sizes.clear();
  const bool isShort = options.compileTo < Phase::Buffers;
  if (config.distributed.overlap != "auto" || config.distributed.ranks() == 1 || !spec || isShort)
    return planMemory(sizes);
  // `values` are in the order of falling memory: plans that compute more beside collectives need
  // more memory. If micro-steps gather no weights, "gathers" is the same as "no".
  SmallVector<StringRef> values = {"yes", "gathers", "no"};
  if (!config.distributed.dividesWeights())
    values = {"yes", "no"};
  return planFastest("overlap", values, config.distributed.overlap,
                     [&] { return planMemory(sizes); });
}

// Plans the job with each of `values` for `setting`, a member of `config`. `plan` makes a plan from
// result.module. Takes the fastest plan within the budget; at equal speed, the smallest. The last
// value must need the least memory. The report `key` lists the attempts.
LogicalResult Driver::planFastest(StringRef key, ArrayRef<StringRef> values, std::string &setting,
                                  llvm::function_ref<LogicalResult()> plan) {
  const Config job = config;
  OwningOpRef<ModuleOp> start = std::move(result.module);
  auto planWith = [&](StringRef value) {
    config = job;
    setting = value.str();
    result.module = start->clone();
    result.fits = true;
    result.smallestBudget = 0;
    return plan();
  };
  struct {
    StringRef value;
    Config config;
    OwningOpRef<ModuleOp> module;
    nlohmann::json reports;
    double tokensPerSecond = 0;
    uint64_t bytes = 0;
  } best;
  nlohmann::json attempts = nlohmann::json::array();
  const bool wasAttempt = isAttempt, hadSmaller = hasSmaller;
  const double rateBefore = std::exchange(fastestRate, 0);
  isAttempt = true;
  for (StringRef value : values) {
    hasSmaller = hadSmaller || value != values.back();
    if (failed(planWith(value)))
      return failure();
    nlohmann::json &attempt = attempts.emplace_back();
    if (const std::optional<double> most = std::exchange(mostRate, std::nullopt)) {
      attempt = {{key.str(), value.str()}, {"at_most_tokens_per_second_per_device", *most}};
      continue;
    }
    attempt = {{key.str(), value.str()}, {"fits", result.fits}};
    if (!result.fits)
      continue;
    FailureOr<double> rate = tokensPerSecond();
    if (failed(rate))
      return failure();
    attempt["tokens_per_second_per_device"] = *rate;
    const uint64_t bytes = attempt["peak_bytes"] = peakBytes();
    if (*rate > best.tokensPerSecond || (*rate == best.tokensPerSecond && bytes < best.bytes))
      best = {value, config, std::move(result.module), phases.reports, *rate, bytes};
    fastestRate = best.tokensPerSecond;
  }
  fastestRate = rateBefore;
  isAttempt = wasAttempt;
  hasSmaller = hadSmaller;
  if (best.module) {
    config = std::move(best.config);
    result.module = std::move(best.module);
    result.fits = true;
    result.smallestBudget = 0;
    phases.reports = std::move(best.reports);
  } else { // no plan fits: takes the value that needs the least memory
    best.value = values.back();
  }
  // Plans the job again, now with dumps and printed IR.
  if (!isAttempt && (!options.dumpDirectory.empty() || !options.printIrAfter.empty()) &&
      failed(planWith(best.value)))
    return failure();
  phases.reports[key.str()] = {{"chosen", best.value.str()}, {"attempts", std::move(attempts)}};
  return success();
}

LogicalResult Driver::planMemory(ArrayRef<int64_t> chunkSizes) {
  // If the compiler chooses the chunk of the loss, searchMemory() replaces this report.
  if (const LossChunk own = lossChunkOf(*result.module); own.tokens > 0) {
    setLossChunk(config, own.tokens);
    phases.reports["loss_chunk"] = lossChunkNotes(own, {}, tokensPerStep());
  }
  const bool isSearch = config.memory.recompute == RecomputeMode::Auto || !chunkSizes.empty() ||
                        (choosesKeptWeights(config) && spec);
  LogicalResult planned = isSearch ? searchMemory(chunkSizes) : planNamedMode();
  if (succeeded(planned) && !result.fits && result.smallestBudget == 0)
    result.smallestBudget = peakBytes();
  return planned;
}

// Reports what a recompute mode other than auto does.
LogicalResult Driver::reportNamedMode() {
  const bool isReported = options.compileTo == Phase::Emit || !options.dumpDirectory.empty();
  if (config.memory.recompute == RecomputeMode::KeepAll || !isReported || options.onlyMeasures)
    return success();
  FailureOr<RecomputeOptions> found =
      recomputeOptionsOf(*result.module, config, spec ? model.get() : nullptr);
  if (failed(found))
    return failure();
  FailureOr<std::vector<int64_t>> choice = found->choiceOf(
      *result.module, recomputeModeName(config.memory.recompute), config.memory.recomputeStride);
  if (failed(choice))
    return failure();
  phases.reports["recompute"] = recomputeNotes(*found, *choice);
  return success();
}

// Makes the plan of a job that leaves nothing to choose, even if the plan exceeds the budget.
LogicalResult Driver::planNamedMode() {
  if (failed(reportNamedMode()) || failed(runUpTo(Phase::Memory, Phase::Buffers)))
    return failure();
  result.fits = options.compileTo < Phase::Buffers || result.budgetBytes == 0 ||
                peakBytes() <= result.budgetBytes;
  return success();
}

// The maximum number of candidates that are planned to find the smallest plan, if no plan fits.
static constexpr size_t kMaxSmallest = 4;

// Models with few layers predict the maximum tokens/s of a job, with an error of a few percent. A
// job counts as too slow only if this factor times the prediction is too slow.
static constexpr double kSureFactor = 1.1;

FailureOr<ModuleOp> Driver::shorterModel(int64_t layers) {
  OwningOpRef<ModuleOp> &known =
      shorter[{layers, config.distributed.reduce, config.memory.lossChunk}];
  if (!known) {
    Config job = config;
    job.model.numHiddenLayers = layers;
    OwningOpRef<ModuleOp> module = buildModel(job, context);
    for (Phase phase : {Phase::Autodiff, Phase::Distribute})
      if (failed(phases.run(phase, *module, PhaseUse::Probe)))
        return failure();
    known = std::move(module);
  }
  return *known;
}

// Returns true if models with 3 and 6 layers show that the state alone surely exceeds the budget.
FailureOr<bool> Driver::isStateTooLarge() {
  constexpr int64_t kFew = 3, kMore = 6;
  constexpr double kSure = 1.02;
  const int64_t layers = config.model.numHiddenLayers;
  if (layers <= kMore || result.budgetBytes == 0)
    return false;
  FailureOr<ModuleOp> few = shorterModel(kFew), more = shorterModel(kMore);
  if (failed(few) || failed(more))
    return failure();
  const auto first = double(stateBytes(*few)), second = double(stateBytes(*more));
  return second + (second - first) / double(kMore - kFew) * double(layers - kMore) >
         kSure * double(result.budgetBytes);
}

// Chooses what the layers recompute, the chunk of the loss, or both.
LogicalResult Driver::searchMemory(ArrayRef<int64_t> chunkSizes) {
  if (failed(requireSpec("memory.recompute")))
    return failure();
  auto makeModel = [&](int64_t layers) -> FailureOr<OwningOpRef<ModuleOp>> {
    FailureOr<ModuleOp> module = shorterModel(layers);
    if (failed(module))
      return failure();
    return OwningOpRef<ModuleOp>(module->clone());
  };
  const uint64_t budget = result.budgetBytes ? result.budgetBytes : UINT64_MAX;
  if (hasSmaller && stateBytes(*result.module) > budget) {
    result.fits = false;
    return success();
  }
  auto search =
      RecomputeSearch::begin(*result.module, config, *model, phases, makeModel, chunkSizes);
  if (failed(search))
    return failure();
  if (fastestRate > 0) {
    FailureOr<std::optional<double>> least = (*search)->leastSeconds();
    if (failed(least))
      return failure();
    if (const double most = double(tokensPerStep()) / least->value_or(0);
        most * kSureFactor < fastestRate) {
      mostRate = most;
      return success();
    }
  }
  if (options.onlyMeasures) {
    FailureOr<RecomputeSearch::Fastest> fastest = (*search)->fastestOfAll(budget);
    if (failed(fastest))
      return failure();
    if (fastest->module) {
      result.module = std::move(fastest->module);
      if (fastest->lossChunk > 0)
        setLossChunk(config, fastest->lossChunk);
      return success();
    }
  }
  if (failed((*search)->complete()))
    return failure();
  BudgetSearch &budgets = (*search)->budgets();
  std::optional<size_t> candidate = budgets.fastest(budget);
  if (!candidate && !budgets.failed()) {
    result.fits = false;
    if (hasSmaller)
      return success();
    candidate = budgets.smallest(kMaxSmallest);
    if (candidate)
      result.smallestBudget = *budgets.bytes(*candidate);
  }
  if (!candidate)
    return failure();
  if (result.fits && !options.onlyMeasures) {
    FailureOr<size_t> fastest = (*search)->fastestPlanned(*candidate, budget);
    if (failed(fastest))
      return failure();
    candidate = *fastest;
  }
  const StringRef mode = config.memory.recompute == RecomputeMode::Auto
                             ? "auto"
                             : recomputeModeName(config.memory.recompute);
  if (!(*search)->candidates()[*candidate].options.empty())
    phases.reports["recompute"] =
        recomputeNotes(**search, *candidate, mode, config.training.gradientAccumulationSteps);
  else if (failed(reportNamedMode()))
    return failure();
  if (choosesKeptWeights(config))
    phases.reports["reshard"] = keptWeightsNotes(**search, *candidate);
  const std::vector<LossChunk> &chunks = (*search)->lossChunks();
  auto taken = llvm::find_if(chunks, [&](const LossChunk &chunk) {
    return chunk.tokens == (*search)->candidates()[*candidate].lossChunk;
  });
  if (taken != chunks.end()) {
    setLossChunk(config, taken->tokens);
    phases.reports["loss_chunk"] = lossChunkNotes(*taken, chunks, tokensPerStep());
  }
  if (isAttempt || (options.compileTo >= Phase::Buffers && options.dumpDirectory.empty() &&
                    options.printIrAfter.empty())) {
    FailureOr<OwningOpRef<ModuleOp>> planned = (*search)->planned(*candidate);
    if (failed(planned))
      return failure();
    result.module = std::move(*planned);
    return success();
  }
  // Plans the chosen candidate again, now with dumps and printed IR.
  OwningOpRef<ModuleOp> chosen = (*search)->chosen((*search)->candidates()[*candidate]);
  search->reset(); // the search refers to the old module, which the next line deletes
  result.module = std::move(chosen);
  return runUpTo(Phase::Memory, Phase::Buffers);
}

LogicalResult Driver::finish() {
  std::unique_ptr<codegen::TargetCode> code;
  if (wantsCode() && result.fits) {
    auto generate = [&] {
      auto made = target->generate(*result.module, config.target, options.kernelCache);
      if (succeeded(made))
        code = std::move(*made);
      return success(succeeded(made));
    };
    if (failed(phases.run(Phase::Codegen, generate)))
      return failure();
  }
  if (options.compileTo < Phase::Emit)
    return success();
  details.reports = phases.reports;
  return phases.run(Phase::Emit, [&]() -> LogicalResult {
    llvm::Expected<std::string> name = target->planTarget(config.target);
    if (!name)
      return report(name.takeError());
    details.target = *name;
    details.code = code.get();
    LogicalResult emitted = success();
    if (!options.onlyMeasures) {
      details.onlyMeasures = true;
      emitted = emitPlan(*result.module, config, details, result.plan);
      details.onlyMeasures = false;
      if (succeeded(emitted))
        price();
    }
    if (succeeded(emitted))
      emitted = emitPlan(*result.module, config, details, result.plan);
    details.code = nullptr;
    return emitted;
  });
}

// Records the link rates that the plan's predictions assume.
void Driver::describeLinks(const plan::Plan &plan) {
  auto add = [&](plan::LinkKind kind, const cost::LinkModel &link, uint32_t ends) {
    if (ends > 1)
      details.links.push_back({{}, kind, link.base, link.latency, link.bandwidth});
  };
  add(plan::LinkKind::Device, spec->deviceLink, plan.devices_per_node());
  add(plan::LinkKind::Node, spec->nodeLink, plan.nodes());
  for (plan::Axis axis :
       {plan::Axis::Shard, plan::Axis::Replicate, plan::Axis::Expert, plan::Axis::ExpertShard}) {
    const cost::Group group = cost::groupOf(plan, axis);
    if (group.nodes * group.devicesPerNode < 2 ||
        (axis == plan::Axis::ExpertShard && plan.expert_ranks() == 1))
      continue;
    const cost::AllGatherLine line = cost::allGatherLine(group, *spec);
    details.axisSpeeds.push_back({{}, axis, line.latency, line.bandwidth});
  }
}

// Adds to `details` what is only known for an emitted plan: the predicted times of its commands,
// warnings about them, and the links.
void Driver::price() {
  const plan::Plan &plan = *plan::GetPlan(result.plan.data());
  std::vector<std::string> warnings = config.warnings;
  std::ranges::copy(config.settingWarnings, std::back_inserter(warnings));
  for (std::string &warning : cost::warningsOf(plan, *model))
    warnings.push_back(std::move(warning));
  const cost::PlanCost cost = spec ? cost::planCost(plan, *model) : cost::PlanCost();
  const double stepSeconds = cost.stepSeconds;
  if (plan::computesOnHost(plan) && stepSeconds > kAbsurdStep)
    warnings.push_back(
        llvm::formatv("the plan is for this machine's CPU, and a step is predicted to "
                      "take {0}; for a GPU give --target=cuda:sm_90a (an H100) or "
                      "target.device",
                      durationText(stepSeconds))
            .str());
  if (std::string warning = unsavedWarning(config, SettingTable(config.settings), stepSeconds);
      !warning.empty())
    warnings.push_back(std::move(warning));
  if (spec && config.distributed.ranks() > 1)
    if (auto warning = strategyWarning(config, plan, forecastOf(plan, result, config), options))
      warnings.push_back(std::move(*warning));
  if (!warnings.empty())
    details.reports["warnings"] = std::move(warnings);
  if (spec)
    describeLinks(plan);
  for (const cost::FunctionCost &function : cost.functions) { // empty without a spec
    std::vector<double> &seconds = details.seconds.emplace_back();
    for (const cost::Estimate &estimate : function.commands)
      seconds.push_back(estimate.seconds);
  }
}

FailureOr<double> Driver::tokensPerSecond() {
  std::string bytes;
  if (failed(requireSpec("training.micro_batch_size")) ||
      failed(emitPlan(*result.module, config, measuredDetails(), bytes)))
    return failure();
  return cost::planCost(*plan::GetPlan(bytes.data()), *model).tokensPerSecond;
}

//===-- The MBS -----------------------------------------------------------------------------===//

static void addTimes(std::vector<PhaseTime> &sum, const std::vector<PhaseTime> &more) {
  for (const PhaseTime &time : more) {
    auto known = llvm::find_if(sum, [&](const PhaseTime &t) { return t.phase == time.phase; });
    if (known == sum.end())
      sum.push_back(time);
    else
      known->seconds += time.seconds;
  }
}

// Plans the job with several micro-batch sizes, and finishes the best plan.
static FailureOr<CompileResult>
compileBestMicroBatch(const Config &config, const CompileOptions &options, MLIRContext &context) {
  const bool isShown = options.compileTo < Phase::Emit || !options.dumpDirectory.empty() ||
                       !options.printIrAfter.empty();
  CompileOptions unseen = options; // attempts write no dumps and print no IR
  unseen.compileTo = Phase::Emit;
  unseen.dumpDirectory.clear();
  unseen.printIrAfter.clear();
  const int64_t devices = config.distributed.nodes * config.distributed.devicesPerNode;
  std::vector<std::unique_ptr<Driver>> drivers; // one per attempt
  auto attempt = [&](int64_t size) -> std::optional<MicroBatchAttempt> {
    Config job = config;
    setMicroBatchSize(job, size);
    Driver &driver =
        *drivers.emplace_back(std::make_unique<Driver>(std::move(job), unseen, context));
    if (failed(driver.plan()))
      return std::nullopt;
    FailureOr<double> rate = driver.tokensPerSecond();
    if (failed(rate))
      return std::nullopt;
    return MicroBatchAttempt{size, driver.peakBytes(), *rate, driver.result.fits};
  };
  std::optional<MicroBatchResult> found =
      searchMicroBatch(config.training.batchSize / devices, attempt);
  if (!found)
    return failure();
  std::vector<PhaseTime> times;
  for (size_t i = 0; i < drivers.size(); ++i)
    if (i != found->best || isShown)
      addTimes(times, drivers[i]->take().times);
  std::unique_ptr<Driver> best = std::move(drivers[found->best]);
  if (isShown) { // plans the best size again, with dumps and printed IR
    Config job = config;
    setMicroBatchSize(job, found->attempts[found->best].size);
    best = std::make_unique<Driver>(std::move(job), options, context);
    if (failed(best->plan()))
      return failure();
  }
  nlohmann::json &attempts = best->reports()["micro_batch"]["attempts"];
  for (const MicroBatchAttempt &each : found->attempts)
    attempts.push_back({{"mbs", each.size},
                        {"peak_bytes", each.peakBytes},
                        {"tokens_per_second_per_device", each.tokensPerSecond},
                        {"fits", each.fits}});
  if (failed(best->finish()))
    return failure();
  CompileResult result = best->take();
  addTimes(result.times, times);
  return result;
}

FailureOr<CompileResult> lmc::compile(const Config &config, const CompileOptions &options,
                                      MLIRContext &context) {
  // The phases before the memory phase do not need the final micro-batch size.
  if (config.training.microBatchAuto && options.compileTo >= Phase::Memory)
    return compileBestMicroBatch(config, options, context);
  Driver driver(config, options, context);
  if (failed(driver.plan()) || failed(driver.finish()))
    return failure();
  return driver.take();
}
