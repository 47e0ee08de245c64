#include "compiler/search/RecomputeSearch.h"

#include "compiler/emit/Emit.h"
#include "dialects/lm/Lm.h"
#include "passes/buffers/BufferAssignment.h"
#include "passes/memory/OpCost.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace mlir;
using namespace lmc;

// Rungs between the fastest and the smallest choice. With so many, a budget leaves a thirtieth
// of what recompute can save unused at most, and half of that on average: for a model of 1B, a
// quarter of a percent of the step's time.
static constexpr int kLadderSteps = 32;

// The first and the last layer may keep and take a little less than the others, by how the
// kernels beside them are fused: a norm's statistics, a launch. So a bound is lowered by this
// part of the workspace, and choices whose times are nearer are not told apart.
static constexpr uint64_t kEndsPart = 1024;
static constexpr double kEndsSeconds = 1e-4; // of all layers'

//===-- Rungs -------------------------------------------------------------------------------===//

static RecomputeRung rungOf(const RecomputeChoiceProblem &problem,
                            const std::vector<int> &options) {
  RecomputeRung rung;
  rung.options.assign(options.begin(), options.end());
  // Sums in one order for all choices with the same options.
  std::map<std::pair<int, int>, int64_t> counts;
  uint64_t held = 0, most = 0;
  for (auto [kind, option] : llvm::zip_equal(problem.layers, options)) {
    ++counts[{kind, option}];
    const LayerOption &of = problem.kinds[size_t(kind)][size_t(option)];
    held += of.keptBytes;
    most = std::max(most, held + of.transientBytes);
  }
  for (const auto &[of, count] : counts)
    rung.seconds += double(count) * problem.kinds[size_t(of.first)][size_t(of.second)].seconds;
  uint64_t workspace = std::max(most, problem.turnBytes + held);
  rung.boundBytes = problem.fixedBytes + workspace - workspace / kEndsPart;
  return rung;
}

// The problem with seconds that chooseRecompute takes: a step on a slow device may take days.
static RecomputeChoiceProblem scaled(const RecomputeChoiceProblem &problem) {
  constexpr double kMost = 1000; // seconds of all layers
  double longest = 0;
  for (int kind : problem.layers) {
    double most = 0;
    for (const LayerOption &option : problem.kinds[size_t(kind)])
      most = std::max(most, option.seconds);
    longest += most;
  }
  RecomputeChoiceProblem same = problem;
  if (longest > kMost)
    for (std::vector<LayerOption> &kind : same.kinds)
      for (LayerOption &option : kind)
        option.seconds *= kMost / longest;
  return same;
}

// The first option with the numbers of this one, or of the last if there are not so many.
static int firstLike(const std::vector<LayerOption> &options, size_t option) {
  const LayerOption &wanted = options[std::min(option, options.size() - 1)];
  return int(llvm::find_if(options, [&](const LayerOption &other) {
               return other.keptBytes == wanted.keptBytes &&
                      other.transientBytes == wanted.transientBytes &&
                      other.seconds == wanted.seconds;
             }) - options.begin());
}

static bool isUniform(const RecomputeRung &rung) { return llvm::all_equal(rung.options); }

std::vector<RecomputeRung> lmc::recomputeRungs(const RecomputeChoiceProblem &problem, int steps) {
  std::set<std::vector<int>> choices;
  for (RecomputeChoice &choice : recomputeLadder(scaled(problem), steps, {}))
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
  std::vector<RecomputeRung> sorted;
  for (const std::vector<int> &choice : choices)
    sorted.push_back(rungOf(problem, choice));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const RecomputeRung &a, const RecomputeRung &b) {
                     return std::pair(a.seconds, a.boundBytes) < std::pair(b.seconds, b.boundBytes);
                   });
  // Of choices too near in time the uniform one stays.
  std::vector<RecomputeRung> rungs;
  for (RecomputeRung &rung : sorted) {
    bool isNear = !rungs.empty() && rung.seconds < rungs.back().seconds * (1 + kEndsSeconds);
    if (isNear && !isUniform(rung))
      continue;
    if (isNear && !isUniform(rungs.back()))
      rungs.pop_back();
    rungs.push_back(std::move(rung));
  }
  return rungs;
}

//===-- Probes ------------------------------------------------------------------------------===//

FailureOr<RecomputeOptions> lmc::recomputeOptionsOf(ModuleOp start, const Config &config,
                                                    const cost::DeviceSpec *spec) {
  return analyzeRecompute(start, [&](Operation *op) {
    if (!spec)
      return modelledSeconds(op);
    return modelledSeconds(op, spec->gemm[size_t(config.training.computeDType)].sustained,
                           spec->memoryBandwidth * spec->reachable);
  });
}

// The first option of the kind that runs the same ops again: itself, or one that it doubles.
static size_t sameAs(const RecomputeKind &kind, size_t option) {
  size_t first = 0;
  while (kind.options[first].recomputed != kind.options[option].recomputed)
    ++first;
  return first;
}

// Options of each kind that are not another's double.
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

// Whether a layer of a probe stands for others of its kind; where all are ends, all do.
static bool isInner(const RecomputeOptions &options, size_t layer) {
  return options.layers.size() <= 2 || (layer > 0 && layer + 1 < options.layers.size());
}

// Choices in which, together, some layer of each kind takes each distinct option. The first
// and the last layer do not count: what they share with the embedding and the head, others
// share with their neighbours.
static std::vector<std::vector<int64_t>> probeChoices(const RecomputeOptions &options) {
  std::vector<std::vector<size_t>> distinct = distinctOptions(options);
  std::vector<size_t> taken(distinct.size(), 0);
  std::vector<std::vector<int64_t>> choices;
  auto unfinished = [&] {
    for (size_t kind = 0; kind < distinct.size(); ++kind)
      if (taken[kind] < distinct[kind].size() &&
          llvm::is_contained(options.layers, int64_t(kind)))
        return true;
    return false;
  };
  while (unfinished()) {
    std::vector<int64_t> &choice = choices.emplace_back();
    for (auto [layer, kind] : llvm::enumerate(options.layers)) {
      const std::vector<size_t> &list = distinct[size_t(kind)];
      size_t &next = taken[size_t(kind)];
      choice.push_back(int64_t(list[next % list.size()]));
      next += isInner(options, layer);
    }
  }
  return choices;
}

// What a probe said, and of which layers.
struct Probe {
  std::vector<int64_t> choice;
  PlanMeasures measures;
};

// An option's numbers are the least of the layers that took it, so that sums of them stay
// lower bounds. What a layer needs is counted beyond what it and those before it keep.
static void addProbes(const RecomputeOptions &options, const std::vector<Probe> &probes,
                      RecomputeChoiceProblem &problem) {
  std::vector<std::vector<LayerOption>> &kinds = problem.kinds;
  auto of = [&](const Probe &probe, size_t layer) -> LayerOption & {
    return kinds[size_t(options.layers[layer])][size_t(probe.choice[layer])];
  };
  for (const Probe &probe : probes)
    for (auto [layer, measure] : llvm::enumerate(probe.measures.layers)) {
      if (!isInner(options, layer))
        continue;
      of(probe, layer).keptBytes = std::min(of(probe, layer).keptBytes, measure.keptBytes);
      of(probe, layer).seconds = std::min(of(probe, layer).seconds, measure.seconds);
    }
  auto beyond = [](uint64_t peak, uint64_t held) { return peak > held ? peak - held : 0; };
  for (const Probe &probe : probes) {
    uint64_t held = 0;
    for (auto [layer, measure] : llvm::enumerate(probe.measures.layers)) {
      held += of(probe, layer).keptBytes;
      if (isInner(options, layer))
        of(probe, layer).transientBytes = std::min(of(probe, layer).transientBytes,
                                                   beyond(measure.peakBytes, held));
    }
    problem.turnBytes = std::min(problem.turnBytes, beyond(probe.measures.turnPeakBytes, held));
  }
}

// Only what depends on recompute: the micro-steps and the layers that they call.
static void keepMicroSteps(ModuleOp module) {
  SymbolTable symbols(module);
  for (bool changed = true; changed;) {
    changed = false;
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate() ? SymbolTable::symbolKnownUseEmpty(function, module)
                               : !function.getSymName().starts_with("micro")) {
        symbols.erase(function);
        changed = true;
      }
  }
}

// The options of a model with another number of layers, if they are those of the whole one:
// then what they cost is the same too.
std::optional<RecomputeOptions> RecomputeSearch::optionsLike(ModuleOp other) const {
  FailureOr<RecomputeOptions> options = recomputeOptionsOf(other, config, &spec);
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

// Bytes of all variables, which live throughout.
static uint64_t stateBytes(ModuleOp module) {
  uint64_t bytes = 0;
  for (auto variable : module.getOps<lm::VariableOp>())
    if (!variable.getStorage()) // else its bytes are another's
      bytes += byteSize(cast<RankedTensorType>(variable.getType()));
  return bytes;
}

static OwningOpRef<ModuleOp> withChoice(ModuleOp module, const RecomputeOptions &options,
                                        ArrayRef<int64_t> choice) {
  OwningOpRef<ModuleOp> copy = module.clone();
  writeRecomputeOptions(*copy, options);
  writeRecomputeChoice(*copy, choice);
  return copy;
}

LogicalResult RecomputeSearch::probe(const MakeModel &makeModel) {
  size_t wanted = 2; // the ends, and layers for one probe
  for (const std::vector<size_t> &distinct : distinctOptions(found))
    wanted += distinct.size();
  ModuleOp probed = start;
  RecomputeOptions options = found; // of the probed model
  OwningOpRef<ModuleOp> other;
  if (makeModel) {
    FailureOr<OwningOpRef<ModuleOp>> made = makeModel(int64_t(wanted));
    if (failed(made))
      return failure();
    if (std::optional<RecomputeOptions> like = optionsLike(**made)) {
      other = std::move(*made);
      probed = *other;
      options = std::move(*like);
    }
  }
  std::vector<Probe> probes;
  for (const std::vector<int64_t> &choice : probeChoices(options)) {
    OwningOpRef<ModuleOp> module = withChoice(probed, options, choice);
    if (failed(phases.run(Phase::Memory, *module, /*isAttempt=*/true)))
      return failure();
    keepMicroSteps(*module);
    std::string bytes;
    if (failed(plan(*module, Phase::Fusion)) ||
        failed(emitPlan(*module, config, PlanDetails(), bytes)))
      return failure();
    (void)phases.run(Phase::Memory, [&] {
      probes.push_back({choice, measureLayers(*plan::GetPlan(bytes.data()), spec)});
      return success();
    });
    probes.back().measures.layers.resize(choice.size());
  }
  problem.layers.assign(found.layers.begin(), found.layers.end());
  problem.fixedBytes = stateBytes(start);
  problem.turnBytes = UINT64_MAX;
  for (const RecomputeKind &kind : found.kinds)
    problem.kinds.emplace_back(kind.options.size(), LayerOption{UINT64_MAX, UINT64_MAX, INFINITY});
  addProbes(options, probes, problem);
  for (auto [kind, measured] : llvm::enumerate(problem.kinds))
    for (size_t option = 0; option < measured.size(); ++option)
      measured[option] = measured[sameAs(found.kinds[kind], option)];
  if (std::string fault = scaled(problem).check(); !fault.empty())
    return start.emitError("gives an ill-formed choice of what to recompute: ") << fault;
  return success();
}

//===-- The search --------------------------------------------------------------------------===//

OwningOpRef<ModuleOp> RecomputeSearch::chosen(const RecomputeRung &rung) {
  return withChoice(start, found, rung.options);
}

LogicalResult RecomputeSearch::plan(ModuleOp module, Phase from) {
  for (Phase phase : {Phase::Memory, Phase::Fusion, Phase::Schedule, Phase::Buffers})
    if (phase >= from && failed(phases.run(phase, module, /*isAttempt=*/true)))
      return failure();
  return success();
}

FailureOr<OwningOpRef<ModuleOp>> RecomputeSearch::planned(size_t rung) {
  if (rung != lastRung) {
    last = chosen(choices[rung]);
    lastRung = rung;
    if (failed(plan(*last, Phase::Memory)))
      return failure();
  }
  lastRung = SIZE_MAX;
  return std::move(last);
}

FailureOr<std::unique_ptr<RecomputeSearch>>
RecomputeSearch::create(ModuleOp start, const Config &config, const cost::DeviceSpec &spec,
                        PhaseRunner &phases, const MakeModel &makeModel) {
  std::unique_ptr<RecomputeSearch> made(new RecomputeSearch(start, config, spec, phases));
  FailureOr<RecomputeOptions> options = failure();
  (void)phases.run(Phase::Memory, [&]() -> LogicalResult {
    return options = recomputeOptionsOf(start, config, &spec);
  });
  if (failed(options))
    return failure();
  made->found = std::move(*options);
  if (failed(made->probe(makeModel)))
    return failure();
  (void)phases.run(Phase::Memory, [&] {
    made->choices = recomputeRungs(made->problem, kLadderSteps);
    return success();
  });
  std::vector<BudgetRung> rungs;
  for (const RecomputeRung &choice : made->choices)
    rungs.push_back({choice.seconds, choice.boundBytes});
  made->search = std::make_unique<BudgetSearch>(
      std::move(rungs), [self = made.get()](size_t rung) -> std::optional<uint64_t> {
        self->last = self->chosen(self->choices[rung]);
        self->lastRung = rung;
        if (failed(self->plan(*self->last, Phase::Memory)))
          return std::nullopt;
        return plannedBytes(*self->last);
      });
  if (std::string fault = made->search->check(); !fault.empty())
    return start.emitError("gives no recompute choices to search: ") << fault;
  return made;
}

std::string RecomputeSearch::nameOf(const RecomputeRung &rung) const {
  std::vector<std::pair<std::string, size_t>> counts; // in order of first layers
  for (auto [layer, option] : llvm::enumerate(rung.options)) {
    const std::string &name =
        found.kinds[size_t(found.layers[layer])].options[size_t(option)].name;
    auto known = llvm::find_if(counts, [&](const auto &entry) { return entry.first == name; });
    if (known == counts.end())
      counts.push_back({name, 1});
    else
      ++known->second;
  }
  std::string text;
  for (const auto &[name, count] : counts)
    text += (text.empty() ? "" : ", ") + name +
            (counts.size() > 1 ? " x " + std::to_string(count) : "");
  return text;
}
