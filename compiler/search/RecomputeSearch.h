// memory.recompute = "auto" chooses one recompute option per layer, and memory.loss_chunk = "auto"
// the chunk of the loss (LossChunk.h). The packed plan must fit the budget and should be fast.
//
// The options come from lm-analyze-recompute. Probes measure them: plans of a few layers, whose
// consecutive layers take different options. From the measures the search builds candidates, from
// the fastest to the one with the fewest bytes. One option for all layers is always a candidate, so
// each named mode is one. The candidates do not depend on the budget. The packed bytes decide which
// candidate is chosen for a budget (BudgetSearch.h).
//
// If ranks divide weights (ZeRO-3), distributed.reshard_after_forward = "auto" also lets layers
// keep their gathered weights for the backward pass. That saves an all-gather and takes memory.
// Each option then has a twin that keeps the weights, and the search chooses among both.
//
// The chunk of the loss changes only the time and the bytes of head and loss. Both are measured for
// each chunk on a short model. Every choice for the layers is a candidate with every chunk.
#pragma once

#include "compiler/algorithms/BudgetSearch.h"
#include "compiler/algorithms/RecomputeChoice.h"
#include "compiler/cost/CostModel.h"
#include "compiler/phases/Phases.h"
#include "compiler/search/LayerMeasures.h"
#include "compiler/search/LossChunk.h"
#include "passes/memory/RecomputeOptions.h"

#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <memory>

namespace lmc {

struct RecomputeCandidate {
  // Per layer, an index into RecomputeChoiceProblem::kinds of the layer's kind; empty if only the
  // chunk of the loss is chosen.
  std::vector<int64_t> options;
  int64_t lossChunk = 0; // tokens; 0: the chunk of the start module
  // Predicted seconds per optimizer step of all layers; if the chunk of the loss is chosen, of the
  // whole model.
  double seconds = 0;
  uint64_t boundBytes = 0; // predicted from probes: a lower bound of the plan's bytes
  // True if the peak is clearly at a layer, so that fewer bytes at the loss do not lower the peak.
  bool isAtLayer = false;
  bool isSpare = false; // true if only fastestPlanned() considers the candidate
};

// The costs of a layer where they differ from those of the problem, per kind and option. `border`
// holds for the first layer and for layers beside one with another option, `last` for the last
// layer. If the lists are empty, the problem's costs hold everywhere.
struct PositionCosts {
  std::vector<std::vector<LayerOption>> border, last;
};

// Returns candidates in order of rising seconds: up to about `steps` choices between the fastest
// one and the one with the fewest bytes, and for each option the choice in which every layer takes
// it (its last option, if a kind has fewer). If `chunks` is not empty, every chunk has such
// candidates.
std::vector<RecomputeCandidate> recomputeCandidates(const RecomputeChoiceProblem &problem,
                                                    int steps, const PositionCosts &positions = {},
                                                    llvm::ArrayRef<LossChunk> chunks = {});

// Returns true if distributed.reshard_after_forward = "auto" leaves a choice: ranks divide the
// weights, and all layers have the same recompute mode or "auto".
bool choosesKeptWeights(const Config &config);

// Returns true if keeping gathered weights saves more than 0.2% of the time. `again` and `kept` are
// the seconds of a plan that gathers weights again and of one that keeps them.
bool isWorthKeeping(double again, double kept);

// Returns the bytes of all variables of a module, which are live throughout a step.
uint64_t stateBytes(mlir::ModuleOp module);

class RecomputeSearch {
public:
  // Builds the job's model with the given number of layers, up to the distribute phase.
  using MakeShorter = std::function<mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>(int64_t)>;

  // Finds the options of the layers. `start` is a module after the distribute phase. All arguments
  // except `makeShorter` must outlive the search. Probes use a shorter model if it has the same
  // kinds of layers. The chunk of the loss is chosen among `chunkSizes`; if there are none, the
  // start module's chunk stays.
  static mlir::FailureOr<std::unique_ptr<RecomputeSearch>>
  begin(mlir::ModuleOp start, const Config &config, const cost::CostModel &model,
        PhaseRunner &phases, const MakeShorter &makeShorter = nullptr,
        llvm::ArrayRef<int64_t> chunkSizes = {});
  // Measures all options and makes the candidates. Before this call, only fastestOfAll(),
  // leastSeconds() and chosen() may be called.
  mlir::LogicalResult complete();

  struct Fastest {
    mlir::OwningOpRef<mlir::ModuleOp> module; // after the buffers phase
    int64_t lossChunk = 0;                    // as in RecomputeCandidate
  };
  // Makes the plan of the candidate that is the fastest without a budget, with fewer probes than
  // complete(). Returns no module if these probes do not show which candidate it is, or if the plan
  // takes more than `budget` bytes.
  mlir::FailureOr<Fastest> fastestOfAll(uint64_t budget);

  // Returns the predicted seconds per optimizer step of all micro-steps, if no value is recomputed
  // that costs a kernel. No plan takes noticeably fewer seconds. Returns nothing if the layers are
  // of several kinds, because the short model does not show how many layers each kind has.
  mlir::FailureOr<std::optional<double>> leastSeconds();

  const RecomputeOptions &options() const { return found; }
  const RecomputeChoiceProblem &measured() const { return problem; }
  const std::vector<LossChunk> &lossChunks() const { return chunks; }
  const std::vector<RecomputeCandidate> &candidates() const { return choices; }
  BudgetSearch &budgets() { return *search; }

  // The cost and the gain of a candidate's kept weights; all zero if no layer keeps its weights.
  struct KeptWeights {
    std::vector<int64_t> layers;
    uint64_t bytes = 0; // bytes that the kept weights take on each rank
    double seconds = 0; // seconds per optimizer step that they save
  };
  KeptWeights keptWeights(const RecomputeCandidate &candidate) const;

  // Returns the candidate whose whole plan is predicted to be the fastest. It is `candidate`, which
  // fits `budget`, or another one that fits, has the same chunk of the loss, and recomputes the
  // same in all layers of a kind. A candidate's own seconds are a sum over probes. Where
  // collectives run beside layers this sum is not exact, because a layer's waits depend on all
  // layers before it.
  mlir::FailureOr<size_t> fastestPlanned(size_t candidate, uint64_t budget);

  // Returns the number of layers per option, for reports: "block x 12, none x 4"; the job's
  // recompute mode if no options are chosen for layers.
  std::string nameOf(const RecomputeCandidate &candidate) const;

  // Returns a copy of the start module that has the candidate's chunk. An attribute states the
  // choice for the layers, which is not applied yet.
  mlir::OwningOpRef<mlir::ModuleOp> chosen(const RecomputeCandidate &candidate);

  // Returns the module of a candidate after the buffers phase. The latest attempt is reused if it
  // was of this candidate.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> planned(size_t candidate);

private:
  RecomputeSearch(mlir::ModuleOp start, const Config &config, const cost::CostModel &model,
                  PhaseRunner &phases, MakeShorter makeShorter, llvm::ArrayRef<int64_t> chunkSizes)
      : start(start), config(config), model(model), phases(phases),
        makeShorter(std::move(makeShorter)), chunkSizes(chunkSizes) {}

  // A model on which options are measured. `owned` is null if `module` is the start module.
  struct Probed {
    mlir::OwningOpRef<mlir::ModuleOp> owned;
    mlir::ModuleOp module;
    RecomputeOptions options;
  };

  bool choosesLayers() const {
    return config.memory.recompute == RecomputeMode::Auto || keepsWeights;
  }
  mlir::FailureOr<RecomputeOptions> optionsOf(mlir::ModuleOp module) const;
  mlir::LogicalResult probeKeptWeights();
  mlir::LogicalResult probe();
  mlir::LogicalResult probeLossChunks();
  std::vector<RecomputeCandidate> makeCandidates() const;
  mlir::FailureOr<double> microStepsOf(mlir::ModuleOp planned) const;
  mlir::FailureOr<Probed> probed(size_t layers);
  // A plan that is made only to be measured. Each layer of `module` takes its option in `choice`,
  // and the loss has chunks of `lossChunk` tokens; 0: the chunk of `module`.
  struct Probe {
    mlir::ModuleOp module;
    const RecomputeOptions *options;
    std::vector<int64_t> choice;
    int64_t lossChunk = 0;
  };
  mlir::FailureOr<std::vector<PlanMeasures>> measure(mlir::ArrayRef<Probe> probes);
  mlir::FailureOr<std::vector<PlanMeasures>> measureChunks(const Probed &model);
  mlir::FailureOr<PlanMeasures> compiled(const Probe &probe) const;
  std::optional<RecomputeOptions> optionsLike(mlir::ModuleOp shorter) const;
  mlir::LogicalResult plan(mlir::ModuleOp module, Phase from, PhaseUse use) const;
  mlir::LogicalResult makePlan(size_t candidate);

  mlir::ModuleOp start;
  const Config &config;
  const cost::CostModel &model;
  PhaseRunner &phases;
  const MakeShorter makeShorter;
  const llvm::ArrayRef<int64_t> chunkSizes;
  bool keepsWeights = false; // true if options that keep weights are worth measuring
  RecomputeOptions found;
  RecomputeChoiceProblem problem;
  PositionCosts positions;
  // Per option: the seconds per optimizer step of the first and the last layer that exceed those of
  // two inner layers, if all layers take this option. No candidate's seconds include them.
  std::vector<double> outerSeconds;
  // The measures of probes, by the options of their layers and their chunk of the loss.
  std::map<std::pair<std::vector<int64_t>, int64_t>, PlanMeasures> measures;
  std::vector<LossChunk> chunks; // empty if the loss chunk is not chosen
  std::vector<RecomputeCandidate> choices;
  std::unique_ptr<BudgetSearch> search;
  mlir::OwningOpRef<mlir::ModuleOp> last; // the module of candidate `lastCandidate`
  size_t lastCandidate = SIZE_MAX;
  PhaseUse planUse = PhaseUse::Attempt; // the use of the plans of candidates that are made now
};

// Returns the recompute options of each layer, none of which keeps weights. The costs come from
// `model` or, if `model` is null, from cost::kDefaultRates.
mlir::FailureOr<RecomputeOptions> recomputeOptionsOf(mlir::ModuleOp start, const Config &config,
                                                     const cost::CostModel *model);

} // namespace lmc
