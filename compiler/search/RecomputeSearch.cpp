#include "compiler/search/RecomputeSearch.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/emit/Emit.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/Lm.h"
#include "ground/plan/Names.h"
#include "passes/distribute/Units.h"
#include "passes/memory/OpCost.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Threading.h"

#include "llvm/ADT/MapVector.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace mlir;
using namespace lmc;

// The approximate number of candidates between the fastest choice and the choice with the fewest
// bytes. Neighbouring candidates differ by about 1/30 of the bytes that recompute can save.
static constexpr int kCandidates = 32;

// Probes may predict a few bytes too many. A candidate's predicted bytes minus 1/256 of them minus
// kSlackBytes is a lower bound of the bytes of the candidate's plan.
static constexpr uint64_t kSlackBytes = 64 << 10;

// The peak is at a layer if head and loss need less than this share of the layers' peak bytes.
static constexpr double kFarBelow = 0.95;

//===-- Candidates --------------------------------------------------------------------------===//

static RecomputeCandidate candidateOf(const RecomputeChoiceProblem &problem,
                                      const std::vector<int> &options,
                                      const PositionCosts &positions) {
  RecomputeCandidate candidate;
  candidate.options.assign(options.begin(), options.end());
  size_t count = options.size();
  auto differs = [&](size_t layer, size_t other) {
    return other < count && options[other] != options[layer];
  };
  const auto &border = positions.border.empty() ? problem.kinds : positions.border;
  const auto &last = positions.border.empty() ? problem.kinds : positions.last;
  // The sums go over kinds and options instead of layers. So rounding is equal in two choices that
  // have the same number of layers per option.
  std::map<std::pair<size_t, size_t>, int64_t> counts, borders;
  uint64_t held = 0, most = 0;
  for (size_t layer = 0; layer < count; ++layer) {
    const size_t kind = size_t(problem.layers[layer]), option = size_t(options[layer]);
    ++counts[{kind, option}];
    const bool isBorder = differs(layer, layer - 1) || differs(layer, layer + 1);
    if (isBorder)
      ++borders[{kind, option}];
    const LayerOption &of = (layer + 1 == count       ? last
                             : isBorder || layer == 0 ? border
                                                      : problem.kinds)[kind][option];
    held += of.keptBytes;
    most = std::max(most, held + of.transientBytes);
  }
  for (const auto &[of, number] : counts)
    candidate.seconds += double(number) * problem.kinds[of.first][of.second].seconds;
  for (const auto &[of, number] : borders)
    candidate.seconds += double(number) * (border[of.first][of.second].seconds -
                                           problem.kinds[of.first][of.second].seconds);
  // The lower bound is a little less than the prediction, because probes are not exact: in a plan,
  // alignment and the first and last layers may differ.
  uint64_t workspace = std::max(most, problem.headAndLossBytes + held);
  candidate.isAtLayer = double(problem.headAndLossBytes + held) < kFarBelow * double(most);
  workspace -= std::min(workspace, positions.border.empty() ? 0 : workspace / 256 + kSlackBytes);
  candidate.boundBytes = problem.fixedBytes + workspace;
  return candidate;
}

// Scales the seconds so that all layers together take at most 1000 seconds. A step on a slow device
// may take days, but chooseRecompute() accepts at most an hour.
static RecomputeChoiceProblem scaled(const RecomputeChoiceProblem &problem) {
  constexpr double kMax = 1000; // maximum of the seconds of all layers together
  double longest = 0;
  for (int kind : problem.layers) {
    double most = 0;
    for (const LayerOption &option : problem.kinds[size_t(kind)])
      most = std::max(most, option.seconds);
    longest += most;
  }
  RecomputeChoiceProblem same = problem;
  if (longest > kMax)
    for (std::vector<LayerOption> &kind : same.kinds)
      for (LayerOption &option : kind)
        option.seconds *= kMax / longest;
  return same;
}

// Returns the index of the first option with the same costs as options[option]. If `options` has no
// such index, options.back() stands for options[option].
static int firstLike(const std::vector<LayerOption> &options, size_t option) {
  const LayerOption &wanted = options[std::min(option, options.size() - 1)];
  return int(llvm::find(options, wanted) - options.begin());
}

static void sortByTime(std::vector<RecomputeCandidate> &candidates) {
  std::ranges::stable_sort(candidates, {}, [](const RecomputeCandidate &candidate) {
    return std::tuple(candidate.seconds, candidate.isSpare, candidate.boundBytes);
  });
}

static std::set<std::vector<int>> choicesOf(const RecomputeChoiceProblem &problem, int steps) {
  std::set<std::vector<int>> choices;
  for (RecomputeChoice &choice : recomputeChoices(scaled(problem), steps, {}))
    choices.insert(std::move(choice.options));
  size_t most = 0;
  for (const std::vector<LayerOption> &kind : problem.kinds)
    most = std::max(most, kind.size());
  for (size_t option = 0; option < most; ++option) {
    std::vector<int> uniform;
    for (int kind : problem.layers)
      uniform.push_back(firstLike(problem.kinds[size_t(kind)], option));
    choices.insert(std::move(uniform));
  }
  return choices;
}

static std::vector<RecomputeCandidate> candidatesOf(const std::set<std::vector<int>> &choices,
                                                    const RecomputeChoiceProblem &problem,
                                                    const PositionCosts &positions) {
  std::vector<RecomputeCandidate> candidates;
  for (const std::vector<int> &choice : choices)
    candidates.push_back(candidateOf(problem, choice, positions));
  sortByTime(candidates);
  return candidates;
}

std::vector<RecomputeCandidate> lmc::recomputeCandidates(const RecomputeChoiceProblem &problem,
                                                         int steps, const PositionCosts &positions,
                                                         ArrayRef<LossChunk> chunks) {
  if (chunks.empty())
    return candidatesOf(choicesOf(problem, steps), problem, positions);
  // If head and loss need more bytes than the backward pass of any layer, every plan has its peak
  // at the loss. If they need fewer bytes than the last layer, the peak is at a layer. In both
  // cases the choices do not depend on the chunk size.
  uint64_t mostTransient = 0, leastLast = problem.layers.empty() ? 0 : UINT64_MAX;
  for (const std::vector<LayerOption> &kind : problem.kinds)
    for (const LayerOption &option : kind)
      mostTransient = std::max(mostTransient, option.transientBytes);
  if (!problem.layers.empty())
    for (const LayerOption &option : problem.kinds[size_t(problem.layers.back())])
      leastLast = std::min(leastLast, option.transientBytes);
  std::optional<std::set<std::vector<int>>> atTheLoss, atALayer;
  std::vector<RecomputeCandidate> all;
  // If the peak is at a layer, all chunk sizes need the same bytes. Then only the fastest chunk
  // size is a candidate.
  std::map<std::vector<int64_t>, size_t> ofLayers; // options -> index in `all`
  for (const LossChunk &chunk : chunks) {
    RecomputeChoiceProblem same = problem;
    same.headAndLossBytes = chunk.headAndLossBytes;
    std::optional<std::set<std::vector<int>>> own;
    auto &choices = chunk.headAndLossBytes >= mostTransient ? atTheLoss
                    : chunk.headAndLossBytes <= leastLast   ? atALayer
                                                            : own;
    if (!choices)
      choices = choicesOf(same, steps);
    for (RecomputeCandidate &candidate : candidatesOf(*choices, same, positions)) {
      candidate.lossChunk = chunk.tokens;
      candidate.seconds += chunk.seconds;
      if (candidate.isAtLayer) {
        auto [known, isNew] = ofLayers.try_emplace(candidate.options, all.size());
        if (!isNew) {
          if (candidate.seconds < all[known->second].seconds)
            all[known->second] = std::move(candidate);
          continue;
        }
      }
      all.push_back(std::move(candidate));
    }
  }
  sortByTime(all);
  return all;
}

//===-- Probes ------------------------------------------------------------------------------===//

// Returns a description of the forward pass's attention for the cost model.
static cost::AttentionWork workOf(lm::AttentionOp op, DataType dtype) {
  auto q = cast<RankedTensorType>(op.getQ().getType());
  auto k = cast<RankedTensorType>(op.getK().getType());
  cost::AttentionWork work;
  work.seq = int64_t(op.getSeq());
  work.headDim = int64_t(op.getHeadDim());
  work.batch = q.getDimSize(0) / work.seq;
  work.heads = q.getDimSize(1) / work.headDim;
  work.kvHeads = k.getDimSize(1) / work.headDim;
  work.window = int64_t(op.getWindow());
  work.dtype = dtype;
  work.documents = bool(op.getStarts());
  return work;
}

FailureOr<RecomputeOptions> lmc::recomputeOptionsOf(ModuleOp start, const Config &config,
                                                    const cost::CostModel *model) {
  const DataType dtype = config.training.computeDType;
  const cost::Rates rates = cost::ratesOf(model ? &model->spec : nullptr, dtype);
  return analyzeRecompute(start, [&](Operation *op) {
    if (auto attention = dyn_cast<lm::AttentionOp>(op); attention && model)
      if (auto kernels = model->attentionKernels(workOf(attention, dtype)); !kernels.empty())
        return sumOf(kernels).seconds;
    if (isa<dist::AllGatherOp>(op) && dist::isExchange(op) && model) {
      const int64_t ranks = config.distributed.expertParallel;
      const int64_t together = std::min(config.distributed.devicesPerNode, ranks);
      const cost::AllGatherLine line =
          cost::allGatherLine({together, (ranks + together - 1) / together}, model->spec);
      return line.latency +
             double(bytesOf(op->getResult(0))) * double(ranks - 1) / double(ranks) / line.bandwidth;
    }
    return modelledSeconds(op, rates);
  });
}

// Returns the index of the kind's first option that recomputes the same ops as `option`, and keeps
// weights if `option` does.
static size_t sameAs(const RecomputeKind &kind, size_t option) {
  size_t first = 0;
  while (kind.options[first].recomputed != kind.options[option].recomputed ||
         kind.options[first].keepsWeights != kind.options[option].keepsWeights)
    ++first;
  return first;
}

// Returns the indices of each kind's options. Leaves out options that equal an earlier one.
static std::vector<std::vector<size_t>> distinctOptions(const RecomputeOptions &options) {
  std::vector<std::vector<size_t>> distinct;
  for (const RecomputeKind &kind : options.kinds) {
    distinct.emplace_back();
    for (size_t option = 0; option < kind.options.size(); ++option)
      if (sameAs(kind, option) == option)
        distinct.back().push_back(option);
  }
  return distinct;
}

// A probe gives one option to this number of consecutive layers. With three layers, the middle one
// has two neighbours with its own option, like most layers of a plan.
static constexpr size_t kRun = 3;

// Returns choices for probes. A run is kRun consecutive layers of one kind with the same option, or
// all layers of the kind if it has fewer. Every distinct option occurs in at least one run. Layers
// after the last run take its option.
static std::vector<std::vector<int64_t>> probeChoices(const RecomputeOptions &options) {
  std::vector<std::vector<size_t>> distinct = distinctOptions(options);
  std::vector<size_t> runs(distinct.size()); // per kind: number of runs in a choice
  for (size_t kind = 0; kind < distinct.size(); ++kind)
    runs[kind] = std::max<size_t>(size_t(llvm::count(options.layers, int64_t(kind))) / kRun, 1);
  std::vector<size_t> taken(distinct.size(), 0); // per kind: number of runs in all choices so far
  std::vector<std::vector<int64_t>> choices;
  auto unfinished = [&] {
    for (size_t kind = 0; kind < distinct.size(); ++kind)
      if (taken[kind] < distinct[kind].size() && llvm::is_contained(options.layers, int64_t(kind)))
        return true;
    return false;
  };
  while (unfinished()) {
    std::vector<int64_t> &choice = choices.emplace_back();
    std::vector<size_t> seen(distinct.size(), 0); // per kind: number of layers in `choice` so far
    for (int64_t layer : options.layers) {
      const size_t kind = size_t(layer);
      const size_t run = std::min(seen[kind]++ / kRun, runs[kind] - 1);
      choice.push_back(int64_t(distinct[kind][(taken[kind] + run) % distinct[kind].size()]));
    }
    for (size_t kind = 0; kind < distinct.size(); ++kind)
      taken[kind] += runs[kind];
  }
  return choices;
}

namespace {

// The measures of one option over all probes. Kernels of neighbouring layers merge, so a layer's
// position matters: `between` two layers of the same option, `last` layer, or `anywhere`. Numbers
// of bytes are minima over all layers in a position. So their sum over layers is a lower bound.
struct OptionMeasure {
  std::optional<LayerOption> between, anywhere, last;
  double longest = 0; // maximum of LayerMeasure::seconds over all layers with the option

  void add(const LayerMeasure &layer, bool isBetween, bool isLast) {
    auto take = [&](std::optional<LayerOption> &known) {
      if (!known)
        known = LayerOption{layer.keptBytes, layer.transientBytes, layer.seconds};
      known->keptBytes = std::min(known->keptBytes, layer.keptBytes);
      known->transientBytes = std::min(known->transientBytes, layer.transientBytes);
    };
    take(anywhere);
    longest = std::max(longest, layer.seconds);
    if (isBetween)
      take(between);
    if (isLast)
      take(last);
  }
  // typical() returns the costs of a layer whose two neighbours take the same option, border() of a
  // layer next to another option, and end() of the last layer.
  LayerOption typical() const {
    LayerOption option = between.value_or(anywhere.value_or(LayerOption()));
    if (!between)
      option.seconds = longest;
    return option;
  }
  LayerOption border() const {
    LayerOption option = anywhere.value_or(LayerOption());
    option.seconds = longest;
    return option;
  }
  LayerOption end() const { return last.value_or(border()); }
};

} // namespace

// Erases all functions but the micro-steps and the layers that they call, because recompute changes
// no others.
static void keepMicroSteps(ModuleOp module) {
  const SymbolTable symbols(module);
  llvm::SetVector<func::FuncOp> kept;
  for (auto function : module.getOps<func::FuncOp>())
    if (names::isMicroStep(function.getSymName()))
      kept.insert(function);
  for (size_t next = 0; next < kept.size(); ++next) { // appends what function `next` calls
    func::FuncOp function = kept[next];
    function.walk(
        [&](func::CallOp call) { kept.insert(symbols.lookup<func::FuncOp>(call.getCallee())); });
  }
  for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
    if (!kept.contains(function))
      function.erase();
}

// Returns the options of `shorter`, a model with fewer layers. Returns nullopt if the whole model
// has different options.
std::optional<RecomputeOptions> RecomputeSearch::optionsLike(ModuleOp shorter) const {
  FailureOr<RecomputeOptions> options = optionsOf(shorter);
  if (failed(options) || options->kinds.size() != found.kinds.size())
    return std::nullopt;
  for (auto [mine, theirs] : llvm::zip_equal(found.kinds, options->kinds)) {
    if (mine.layer != theirs.layer || mine.options.size() != theirs.options.size())
      return std::nullopt;
    for (auto [one, other] : llvm::zip_equal(mine.options, theirs.options))
      if (one.recomputed != other.recomputed || one.keptBytes != other.keptBytes)
        return std::nullopt;
  }
  return *options;
}

uint64_t lmc::stateBytes(ModuleOp module) {
  uint64_t bytes = 0;
  for (auto variable : module.getOps<lm::VariableOp>())
    if (!variable.getStorage()) // a variable inside a storage has no bytes of its own
      bytes += byteSize(cast<RankedTensorType>(variable.getType()));
  return bytes;
}

static std::vector<int64_t> layersWithWeights(const RecomputeOptions &options,
                                              ArrayRef<int64_t> choice) {
  std::vector<int64_t> layers;
  for (auto [layer, option] : llvm::enumerate(choice))
    if (options.kinds[size_t(options.layers[layer])].options[size_t(option)].keepsWeights)
      layers.push_back(int64_t(layer));
  return layers;
}

// Returns the index of the option that recomputes the same ops as `option` but keeps no weights.
// The second half of the list repeats the first half with kept weights (addTwins()).
static size_t withoutWeights(const RecomputeKind &kind, size_t option) {
  return kind.options[option].keepsWeights ? option - kind.options.size() / 2 : option;
}

// Returns true if `choice` lets all layers of a kind recompute the same ops.
static bool recomputesAlike(ArrayRef<int64_t> choice, const RecomputeOptions &options) {
  std::vector<std::optional<size_t>> known(options.kinds.size());
  for (auto [kind, option] : llvm::zip_equal(options.layers, choice)) {
    const size_t recomputed = withoutWeights(options.kinds[size_t(kind)], size_t(option));
    if (known[size_t(kind)].value_or(recomputed) != recomputed)
      return false;
    known[size_t(kind)] = recomputed;
  }
  return true;
}

static OwningOpRef<ModuleOp> withChoice(ModuleOp module, const RecomputeOptions &options,
                                        ArrayRef<int64_t> choice) {
  OwningOpRef<ModuleOp> copy = module.clone();
  std::vector<int64_t> recomputed;
  for (auto [kind, option] : llvm::zip_equal(options.layers, choice))
    recomputed.push_back(int64_t(withoutWeights(options.kinds[size_t(kind)], size_t(option))));
  writeRecomputeOptions(*copy, options);
  writeRecomputeChoice(*copy, recomputed);
  if (const std::vector<int64_t> kept = layersWithWeights(options, choice); !kept.empty())
    (*copy)->setAttr(kKeptWeights, DenseI64ArrayAttr::get(module.getContext(), kept));
  return copy;
}

//===-- Kept weights ------------------------------------------------------------------------===//

bool lmc::choosesKeptWeights(const Config &config) {
  const DistributedConfig &distributed = config.distributed;
  return distributed.reshardAfterForward == "auto" && distributed.dividesWeights() &&
         distributed.shardRanks() > 1 && config.memory.recomputeStride == 1 &&
         config.memory.recompute != RecomputeMode::KeepAll;
}

bool lmc::isWorthKeeping(double again, double kept) { return again - kept > 0.002 * again; }

// For each option, appends a twin: a copy that also keeps the gathered weights.
static void addTwins(RecomputeOptions &options) {
  for (RecomputeKind &kind : options.kinds)
    for (size_t option = 0, count = kind.options.size(); option < count; ++option) {
      RecomputeOption twin = kind.options[option];
      twin.name += "+weights";
      twin.keepsWeights = true;
      kind.options.push_back(std::move(twin));
    }
}

// Returns the options among which the search chooses.
FailureOr<RecomputeOptions> RecomputeSearch::optionsOf(ModuleOp module) const {
  FailureOr<RecomputeOptions> options = recomputeOptionsOf(module, config, &model);
  if (failed(options) || !choosesKeptWeights(config))
    return options;
  if (config.memory.recompute != RecomputeMode::Auto)
    for (RecomputeKind &kind : options->kinds)
      kind.options = {kind.options[size_t(kind.find(recomputeModeName(config.memory.recompute)))]};
  if (keepsWeights)
    addTwins(*options);
  return options;
}

// Decides if options that keep weights are worth measuring. For this, compares the first option of
// each layer with its twin that keeps weights, on a short model.
LogicalResult RecomputeSearch::probeKeptWeights() {
  FailureOr<Probed> model = probed(kRun);
  if (failed(model))
    return failure();
  RecomputeOptions both = model->options;
  addTwins(both);
  std::vector<Probe> probes(2, Probe{model->module, &both, {}});
  for (size_t twin : {0, 1})
    for (int64_t kind : both.layers)
      probes[twin].choice.push_back(int64_t(twin * both.kinds[size_t(kind)].options.size() / 2));
  FailureOr<std::vector<PlanMeasures>> measured = measure(probes);
  if (failed(measured))
    return failure();
  auto secondsOf = [&](size_t twin) {
    return microStepSeconds((*measured)[twin], found.layers.size());
  };
  keepsWeights = isWorthKeeping(secondsOf(0), secondsOf(1));
  if (keepsWeights)
    addTwins(found);
  return success();
}

FailureOr<std::optional<double>> RecomputeSearch::leastSeconds() {
  if (found.kinds.size() != 1)
    return std::optional<double>();
  FailureOr<Probed> model = probed(kRun);
  if (failed(model))
    return failure();
  const RecomputeKind &kind = model->options.kinds[0];
  // The option that keeps the most bytes is "keep1", or "none" if "keep1" does not exist.
  const int64_t most = std::max<int64_t>(kind.find("keep1"), 0);
  std::vector<int64_t> options = {most};
  if (keepsWeights)
    options.push_back(most + int64_t(kind.options.size() / 2));
  std::vector<Probe> probes;
  for (int64_t option : options)
    probes.push_back({model->module, &model->options,
                      std::vector<int64_t>(model->options.layers.size(), option)});
  FailureOr<std::vector<PlanMeasures>> measured = measure(probes);
  if (failed(measured))
    return failure();
  std::optional<double> least;
  for (const PlanMeasures &measures : *measured) {
    const double seconds = microStepSeconds(measures, found.layers.size());
    least = std::min(least.value_or(seconds), seconds);
  }
  return least;
}

RecomputeSearch::KeptWeights
RecomputeSearch::keptWeights(const RecomputeCandidate &candidate) const {
  KeptWeights kept;
  kept.layers = layersWithWeights(found, candidate.options);
  for (int64_t layer : kept.layers) {
    const size_t kind = size_t(found.layers[size_t(layer)]);
    const size_t option = size_t(candidate.options[size_t(layer)]);
    const LayerOption &with = problem.kinds[kind][option],
                      &without = problem.kinds[kind][withoutWeights(found.kinds[kind], option)];
    kept.bytes += with.keptBytes - std::min(with.keptBytes, without.keptBytes);
    kept.seconds += without.seconds - with.seconds;
  }
  return kept;
}

// Compiles a probe and measures its layers. Several threads may call this function in parallel.
FailureOr<PlanMeasures> RecomputeSearch::compiled(const Probe &probe) const {
  OwningOpRef<ModuleOp> module = withChoice(probe.module, *probe.options, probe.choice);
  if (probe.lossChunk > 0)
    setLossChunk(*module, probe.lossChunk);
  if (failed(phases.run(Phase::Memory, *module, PhaseUse::Probe)))
    return failure();
  keepMicroSteps(*module);
  std::string bytes;
  if (failed(plan(*module, Phase::Fusion, PhaseUse::Probe)) ||
      failed(emitPlan(*module, config, measuredDetails(), bytes)))
    return failure();
  PlanMeasures made;
  (void)phases.run(Phase::Memory, [&] {
    made = measureLayers(*plan::GetPlan(bytes.data()), model);
    return success();
  });
  made.layers.resize(probe.choice.size());
  return made;
}

// Returns the measures of each probe, in the order of `probes`. Threads of the MLIR context compile
// in parallel those probes that have no measures yet.
FailureOr<std::vector<PlanMeasures>> RecomputeSearch::measure(ArrayRef<Probe> probes) {
  // The key is the options of a probe's layers and the chunk size. Models differ in the number of
  // layers, and so in their keys. Twins are appended, so older indices of options stay valid.
  using Key = std::pair<std::vector<int64_t>, int64_t>;
  auto keyOf = [](const Probe &probe) {
    return Key(probe.choice, probe.lossChunk ? probe.lossChunk : lossChunkOf(probe.module).tokens);
  };
  std::map<Key, FailureOr<PlanMeasures>> results;
  std::vector<std::pair<const Probe *, FailureOr<PlanMeasures> *>> missing;
  for (const Probe &probe : probes)
    if (Key key = keyOf(probe); !measuresOf.count(key))
      if (auto [entry, isNew] = results.try_emplace(std::move(key), failure()); isNew)
        missing.push_back({&probe, &entry->second});
  start.getContext()->loadAllAvailableDialects(); // the threads can only use loaded dialects
  parallelForEach(start.getContext(), missing,
                  [&](auto &each) { *each.second = compiled(*each.first); });
  for (auto &[key, measure] : results) {
    if (failed(measure))
      return failure();
    measuresOf.emplace(key, std::move(*measure));
  }
  std::vector<PlanMeasures> all;
  for (const Probe &probe : probes)
    all.push_back(measuresOf.at(keyOf(probe)));
  return all;
}

// Returns a model with `layers` layers and its options. If its layers would have other options than
// the whole model, returns the whole model.
FailureOr<RecomputeSearch::Probed> RecomputeSearch::probed(size_t layers) {
  if (makeShorter && layers < found.layers.size()) {
    FailureOr<OwningOpRef<ModuleOp>> made = makeShorter(int64_t(layers));
    if (failed(made))
      return failure();
    if (std::optional<RecomputeOptions> like = optionsLike(**made)) {
      ModuleOp module = **made;
      return Probed{std::move(*made), module, std::move(*like)};
    }
  }
  return Probed{nullptr, start, found};
}

LogicalResult RecomputeSearch::probe() {
  size_t wanted = 0, most = 0; // layers that a probe needs; maximum number of options of one kind
  std::vector<std::vector<size_t>> distinct = distinctOptions(found);
  for (const std::vector<size_t> &list : distinct) {
    wanted += kRun * list.size();
    most = std::max(most, list.size());
  }
  std::vector<std::vector<OptionMeasure>> known;
  for (const RecomputeKind &kind : found.kinds)
    known.emplace_back(kind.options.size());
  problem.layers.assign(found.layers.begin(), found.layers.end());
  problem.fixedBytes = stateBytes(start);
  problem.headAndLossBytes = UINT64_MAX;
  // The last layer is measured separately, because most bytes are live there. For each option there
  // is a short probe whose last layer has this option.
  FailureOr<Probed> longer = probed(wanted), shortest = probed(kRun);
  if (failed(longer) || failed(shortest))
    return failure();
  std::vector<Probe> probes;
  for (std::vector<int64_t> &choice : probeChoices(longer->options))
    probes.push_back({longer->module, &longer->options, std::move(choice)});
  const size_t longProbes = probes.size();
  for (size_t option = 0; option < most; ++option) {
    std::vector<int64_t> choice;
    for (int64_t kind : shortest->options.layers) {
      const std::vector<size_t> &list = distinct[size_t(kind)];
      choice.push_back(int64_t(list[std::min(option, list.size() - 1)]));
    }
    probes.push_back({shortest->module, &shortest->options, std::move(choice)});
  }
  FailureOr<std::vector<PlanMeasures>> measured = measure(probes);
  if (failed(measured))
    return failure();
  outerSeconds.resize(found.kinds[size_t(found.layers.front())].options.size());
  for (size_t number = 0; number < probes.size(); ++number) {
    const std::vector<int64_t> &choice = probes[number].choice;
    const PlanMeasures &measures = (*measured)[number];
    problem.headAndLossBytes = std::min(problem.headAndLossBytes, measures.headAndLossBytes);
    for (auto [layer, option] : llvm::enumerate(choice)) {
      bool isBetween = layer > 0 && layer + 1 < choice.size() && choice[layer - 1] == option &&
                       choice[layer + 1] == option;
      known[size_t(probes[number].options->layers[layer])][size_t(option)].add(
          measures.layers[layer], isBetween, layer + 1 == choice.size());
    }
    if (number < longProbes)
      continue;
    double &outer = outerSeconds[size_t(choice.front())];
    outer = chunkSizes.empty() ? measures.otherSeconds : 0;
    if (measures.layers.size() >= kRun)
      outer += measures.layers.front().seconds + measures.layers.back().seconds -
               2 * measures.layers[1].seconds;
  }

  for (auto [kind, measured] : llvm::enumerate(known)) {
    problem.kinds.emplace_back();
    positions.border.emplace_back();
    positions.last.emplace_back();
    for (size_t option = 0; option < measured.size(); ++option) {
      const OptionMeasure &of = measured[sameAs(found.kinds[kind], option)];
      problem.kinds.back().push_back(of.typical());
      positions.border.back().push_back(of.border());
      positions.last.back().push_back(of.end());
    }
  }
  if (Result<void> sound = scaled(problem).check(); !sound)
    return start.emitError("gives an ill-formed choice of what to recompute: ")
           << sound.error().message;
  return success();
}

// Returns one measure per chunk size of `chunkSizes`. All layers of the model take option 0.
FailureOr<std::vector<PlanMeasures>> RecomputeSearch::measureChunks(const Probed &model) {
  std::vector<Probe> probes;
  for (int64_t size : chunkSizes)
    probes.push_back(
        {model.module, &model.options, std::vector<int64_t>(model.options.layers.size(), 0), size});
  return measure(probes);
}

LogicalResult RecomputeSearch::probeLossChunks() {
  FailureOr<Probed> model = probed(kRun);
  if (failed(model))
    return failure();
  FailureOr<std::vector<PlanMeasures>> measured = measureChunks(*model);
  if (failed(measured))
    return failure();
  const LossChunk own = lossChunkOf(start);
  for (auto [size, measures] : llvm::zip_equal(chunkSizes, *measured))
    chunks.push_back({size, own.logitsBytes / uint64_t(own.tokens) * uint64_t(size),
                      measures.headAndLossBytes, measures.otherSeconds});
  return success();
}

//===-- The search --------------------------------------------------------------------------===//

// If weights may be kept, memory.recompute = "auto" adds candidates for fastestPlanned() (isSpare):
// all layers take one named mode, and each may keep its weights. If only the chunk of the loss is
// chosen, each chunk size is a candidate, and the lower bound of its bytes is only the state.
std::vector<RecomputeCandidate> RecomputeSearch::makeCandidates() const {
  auto candidatesOf = [&](const RecomputeChoiceProblem &of, const PositionCosts &at) {
    return recomputeCandidates(of, kCandidates, at, chunks);
  };
  if (choosesLayers()) {
    std::vector<RecomputeCandidate> all = candidatesOf(problem, positions);
    if (config.memory.recompute != RecomputeMode::Auto || !keepsWeights)
      return all;
    std::set<std::pair<std::vector<int64_t>, int64_t>> known;
    for (const RecomputeCandidate &candidate : all)
      known.insert({candidate.options, candidate.lossChunk});
    for (size_t mode = 0; mode < std::size(kRecomputeModes); ++mode) {
      if (llvm::all_of(found.kinds, [&](const auto &kind) { return sameAs(kind, mode) != mode; }))
        continue; // the mode recomputes the same ops as an earlier one
      RecomputeChoiceProblem alike = problem;
      PositionCosts at = positions;
      for (auto *kinds : {&alike.kinds, &at.border, &at.last})
        for (std::vector<LayerOption> &kind : *kinds)
          kind = {kind[mode], kind[kind.size() / 2 + mode]};
      for (RecomputeCandidate &candidate : candidatesOf(alike, at)) {
        for (auto [kind, option] : llvm::zip_equal(found.layers, candidate.options))
          option = int64_t(mode + size_t(option) * (found.kinds[size_t(kind)].options.size() / 2));
        candidate.isSpare = true;
        if (known.insert({candidate.options, candidate.lossChunk}).second)
          all.push_back(std::move(candidate));
      }
    }
    sortByTime(all);
    return all;
  }
  std::vector<RecomputeCandidate> candidates;
  for (const LossChunk &chunk : chunks)
    candidates.push_back({{}, chunk.tokens, chunk.seconds, stateBytes(start)});
  if (candidates.empty()) // there is nothing to choose
    candidates.push_back({{}, 0, 0, stateBytes(start)});
  sortByTime(candidates);
  return candidates;
}

OwningOpRef<ModuleOp> RecomputeSearch::chosen(const RecomputeCandidate &candidate) {
  OwningOpRef<ModuleOp> module =
      candidate.options.empty() ? start.clone() : withChoice(start, found, candidate.options);
  if (candidate.lossChunk > 0)
    setLossChunk(*module, candidate.lossChunk);
  return module;
}

LogicalResult RecomputeSearch::plan(ModuleOp module, Phase from, PhaseUse use) const {
  for (Phase phase : {Phase::Memory, Phase::Fusion, Phase::Schedule, Phase::Buffers})
    if (phase >= from && failed(phases.run(phase, module, use)))
      return failure();
  return success();
}

// Makes the plan of a candidate and stores it in `last`.
LogicalResult RecomputeSearch::makePlan(size_t candidate) {
  last = chosen(choices[candidate]);
  lastCandidate = candidate;
  return plan(*last, Phase::Memory, planUse);
}

FailureOr<OwningOpRef<ModuleOp>> RecomputeSearch::planned(size_t candidate) {
  if (candidate != lastCandidate && failed(makePlan(candidate)))
    return failure();
  lastCandidate = SIZE_MAX;
  return std::move(last);
}

// Returns the predicted seconds of all micro-steps of an optimizer step.
FailureOr<double> RecomputeSearch::microStepsOf(ModuleOp planned) const {
  std::string bytes;
  if (failed(emitPlan(planned, config, measuredDetails(), bytes)))
    return failure();
  const plan::Plan &plan = *plan::GetPlan(bytes.data());
  const cost::PlanCost cost = cost::planCost(plan, model);
  double seconds = 0;
  for (unsigned f = 0; f < plan.functions()->size(); ++f)
    if (names::isMicroStep(plan.functions()->Get(f)->name()->string_view()))
      seconds += double(cost.functions[f].runsPerStep) * cost.functions[f].seconds;
  return seconds;
}

FailureOr<size_t> RecomputeSearch::fastestPlanned(size_t candidate, uint64_t budget) {
  if (config.distributed.ranks() == 1 || choices[candidate].options.empty())
    return candidate;                            // no collectives, or no options are chosen
  std::vector<std::pair<double, size_t>> others; // (sum over probes in seconds, candidate)
  auto byProbes = [&](const RecomputeCandidate &of) {
    return of.seconds + outerSeconds[size_t(of.options[0])];
  };
  // Sums over probes contain waits for collectives. If all layers of `candidate` take one option,
  // no sum contains more waits than its sum. Then only candidates with smaller sums can be faster.
  const double most =
      llvm::all_equal(choices[candidate].options) ? byProbes(choices[candidate]) : HUGE_VAL;
  for (size_t other = 0; other < choices.size(); ++other)
    if (const RecomputeCandidate &of = choices[other];
        other != candidate && byProbes(of) < most && of.lossChunk == choices[candidate].lossChunk &&
        of.boundBytes <= budget && recomputesAlike(of.options, found))
      others.push_back({byProbes(of), other});
  if (others.empty())
    return candidate;
  llvm::sort(others);

  FailureOr<OwningOpRef<ModuleOp>> own = planned(candidate);
  FailureOr<double> seconds = failed(own) ? FailureOr<double>(failure()) : microStepsOf(**own);
  if (failed(seconds))
    return failure();
  const size_t first = candidate;
  // A plan is tried only if its predicted saving is at least this share of a step.
  constexpr double kWorth = 2.5e-3;
  // The minimum of (seconds of a plan / its candidate's sum over probes) over the plans made so
  // far. Sums of other candidates are multiplied by it, to predict their plans' seconds.
  std::optional<double> longer;
  planUse = PhaseUse::Probe; // most of these plans are slower, so they are only measured
  for (auto [sum, other] : others) {
    if (sum * longer.value_or(1) >= *seconds * (1 - kWorth)) // no later sum is smaller
      break;
    const std::optional<uint64_t> bytes = search->bytes(other);
    if (!bytes)
      return failure();
    if (*bytes > budget)
      continue;
    FailureOr<OwningOpRef<ModuleOp>> module = planned(other);
    FailureOr<double> its = failed(module) ? FailureOr<double>(failure()) : microStepsOf(**module);
    if (failed(its))
      return failure();
    longer = std::min(longer.value_or(*its / sum), *its / sum);
    if (*its < *seconds) {
      seconds = its;
      candidate = other;
    }
  }
  planUse = PhaseUse::Attempt;
  last = std::move(*own);
  lastCandidate = first;
  return candidate;
}

FailureOr<std::unique_ptr<RecomputeSearch>>
RecomputeSearch::begin(ModuleOp start, const Config &config, const cost::CostModel &model,
                       PhaseRunner &phases, const MakeShorter &makeShorter,
                       ArrayRef<int64_t> chunkSizes) {
  std::unique_ptr<RecomputeSearch> made(
      new RecomputeSearch(start, config, model, phases, makeShorter, chunkSizes));
  FailureOr<RecomputeOptions> options = failure();
  if (failed(phases.run(Phase::Memory,
                        [&]() -> LogicalResult { return options = made->optionsOf(start); })))
    return failure();
  made->found = std::move(*options);
  if (choosesKeptWeights(config) && failed(made->probeKeptWeights()))
    return failure();
  return made;
}

LogicalResult RecomputeSearch::complete() {
  if ((choosesLayers() && failed(probe())) || failed(probeLossChunks()))
    return failure();
  (void)phases.run(Phase::Memory, [&] {
    choices = makeCandidates();
    return success();
  });
  std::vector<BudgetCandidate> candidates;
  for (const RecomputeCandidate &choice : choices)
    candidates.push_back({choice.seconds, choice.boundBytes, choice.isSpare});
  search = std::make_unique<BudgetSearch>(std::move(candidates),
                                          [this](size_t candidate) -> std::optional<uint64_t> {
                                            if (failed(makePlan(candidate)))
                                              return std::nullopt;
                                            return plannedBytes(*last);
                                          });
  if (Result<void> sound = search->check(); !sound)
    return start.emitError("gives no plans to search: ") << sound.error().message;
  return success();
}

// Returns the number in the pair (seconds, number) with the fewest seconds. Returns nullopt if
// another pair has nearly the same seconds: at most 1 + kTie times as many.
static std::optional<size_t> fastestOf(ArrayRef<std::pair<double, size_t>> list) {
  constexpr double kTie = 1e-9;
  const auto *least = llvm::min_element(list);
  if (least == list.end() || llvm::count_if(list, [&](const auto &other) {
                               return other.first <= least->first * (1 + kTie);
                             }) > 1)
    return std::nullopt;
  return least->second;
}

// Layers of different options side by side are never faster than layers of one option. So if all
// layers are of one kind, the fastest choice gives all of them the same option.
FailureOr<RecomputeSearch::Fastest> RecomputeSearch::fastestOfAll(uint64_t budget) {
  if (!choosesLayers() || found.kinds.size() != 1)
    return Fastest{};
  const std::vector<size_t> distinct = distinctOptions(found)[0];
  FailureOr<Probed> model = probed(kRun * distinct.size());
  if (failed(model))
    return failure();
  std::map<size_t, LayerMeasure> between; // per option: first layer whose neighbours have it too
  std::vector<Probe> probes;
  for (std::vector<int64_t> &choice : probeChoices(model->options))
    probes.push_back({model->module, &model->options, std::move(choice)});
  FailureOr<std::vector<PlanMeasures>> measured = measure(probes);
  if (failed(measured))
    return failure();
  for (auto [probe, measures] : llvm::zip_equal(probes, *measured))
    for (size_t layer = 1; layer + 1 < probe.choice.size(); ++layer)
      if (probe.choice[layer - 1] == probe.choice[layer] &&
          probe.choice[layer + 1] == probe.choice[layer])
        between.try_emplace(size_t(probe.choice[layer]), measures.layers[layer]);
  std::vector<std::pair<double, size_t>> options; // (seconds, option)
  for (const auto &[option, layer] : between)
    options.push_back({layer.seconds, option});
  if (options.size() != distinct.size())
    return Fastest{};
  const std::optional<size_t> option = fastestOf(options);
  if (!option)
    return Fastest{};
  // Makes no plan if the state and the kept bytes alone exceed the budget by 1%.
  if (double(stateBytes(start) + found.layers.size() * between[*option].keptBytes) >
      1.01 * double(budget))
    return Fastest{};

  // A short model suffices: two chunk sizes differ by the same seconds for any number of layers.
  std::vector<std::pair<double, size_t>> sizes; // (seconds, chunk)
  if (!chunkSizes.empty()) {
    FailureOr<Probed> shortest = probed(1);
    if (failed(shortest))
      return failure();
    if (!shortest->owned)
      return Fastest{};
    FailureOr<std::vector<PlanMeasures>> ofSizes = measureChunks(*shortest);
    if (failed(ofSizes))
      return failure();
    for (auto [size, measures] : llvm::zip_equal(chunkSizes, *ofSizes))
      sizes.push_back({measures.otherSeconds, size_t(size)});
  }
  const std::optional<size_t> size = fastestOf(sizes);
  if (!chunkSizes.empty() && !size)
    return Fastest{};
  const int64_t lossChunk = int64_t(size.value_or(0));
  const std::vector<int64_t> choice(found.layers.size(), int64_t(*option));
  Fastest fastest{chosen({choice, lossChunk}), lossChunk};
  if (failed(plan(*fastest.module, Phase::Memory, PhaseUse::Attempt)))
    return failure();
  if (plannedBytes(*fastest.module) > budget)
    return Fastest{};
  return fastest;
}

std::string RecomputeSearch::nameOf(const RecomputeCandidate &candidate) const {
  if (candidate.options.empty())
    return recomputeModeName(config.memory.recompute).str();
  llvm::MapVector<StringRef, size_t> counts; // layers per option, in order of the first layer
  for (auto [kind, option] : llvm::zip_equal(found.layers, candidate.options))
    ++counts[found.kinds[size_t(kind)].options[size_t(option)].name];
  std::string text;
  for (const auto &[name, count] : counts)
    text += (text.empty() ? "" : ", ") + name.str() +
            (counts.size() > 1 ? " x " + std::to_string(count) : "");
  return text;
}
