// memory.recompute = "auto" chooses a recompute option for each layer. memory.loss_chunk = "auto"
// chooses the chunk of the loss (LossChunk.h). The plan must fit the budget and should be fast.
//
// lm-analyze-recompute lists the options. A probe, a plan of a few layers with different options,
// measures them. The measures give a list of candidates, from the fastest to the one with the
// fewest bytes. In some, all layers take the same option, such as a named mode. The list does not
// depend on the budget. For a given budget, the search compiles plans of some candidates
// (BudgetSearch.h).
//
// If ranks divide weights (ZeRO-3), distributed.reshard_after_forward = "auto" also lets layers
// keep their gathered weights for the backward pass. That saves an all-gather and takes memory.
// Each option then has a twin that also keeps the weights, and the search may choose either.
//
// The chunk of the loss changes only the time and the bytes of head and loss. A short model
// measures them for each chunk size. Each choice for the layers is combined with each chunk size.
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
  // options[l] is the option of layer l: an index into RecomputeChoiceProblem::kinds[kind of l].
  // Empty if only the chunk of the loss is chosen.
  std::vector<int64_t> options;
  int64_t lossChunk = 0; // tokens; 0: the chunk of the start module
  // Predicted seconds per optimizer step. They are for all layers, or for whole micro-steps if the
  // chunk of the loss is chosen.
  double seconds = 0;
  uint64_t boundBytes = 0; // predicted from probes: a lower bound of the plan's bytes
  // True if the peak is certainly in a layer. Smaller chunks of the loss then do not save bytes.
  bool isAtLayer = false;
  bool isSpare = false; // true if only fastestPlanned() considers the candidate
};

// The costs of layers in special positions: border[kind][option] and last[kind][option]. `border`
// is for the first layer and for layers next to a layer with another option. `last` is for the last
// layer. If both are empty, all layers have the costs in RecomputeChoiceProblem.
struct PositionCosts {
  std::vector<std::vector<LayerOption>> border, last;
};

// Returns candidates, fastest first. About `steps` of them lie between the fastest choice and the
// choice with the fewest bytes. In others all layers take the same option. (A kind that lacks this
// option takes its last one.) With `chunks`, each choice is combined with each chunk size. A slower
// chunk size that saves no bytes is left out.
std::vector<RecomputeCandidate> recomputeCandidates(const RecomputeChoiceProblem &problem,
                                                    int steps, const PositionCosts &positions = {},
                                                    llvm::ArrayRef<LossChunk> chunks = {});

// Returns true if the compiler chooses whether to keep gathered weights: reshard_after_forward is
// "auto", ranks divide weights, and all layers have one memory.recompute, which is not "keep-all".
bool choosesKeptWeights(const Config &config);

// Returns true if plans that keep gathered weights are more than 0.2% faster. A plan that gathers
// weights a second time takes `again` seconds, a plan that keeps them `kept` seconds.
bool isWorthKeeping(double again, double kept);

// Returns the number of bytes of all variables, which are live throughout a step.
uint64_t stateBytes(mlir::ModuleOp module);

class RecomputeSearch {
public:
  // Builds the job's model with fewer layers and runs all phases up to the distribute phase.
  using MakeShorter = std::function<mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>(int64_t)>;

  // Finds the options of the layers. `start` is a module after the distribute phase. All arguments
  // except `makeShorter` must outlive the search. Probes use a shorter model if it has the same
  // kinds of layers. `chunkSizes` are the candidates for the tokens per chunk of the loss. If it is
  // empty, `start` keeps its chunk size.
  static mlir::FailureOr<std::unique_ptr<RecomputeSearch>>
  begin(mlir::ModuleOp start, const Config &config, const cost::CostModel &model,
        PhaseRunner &phases, const MakeShorter &makeShorter = nullptr,
        llvm::ArrayRef<int64_t> chunkSizes = {});
  // Measures all options and makes the candidates. Before this call, only fastestOfAll(),
  // leastSeconds() and chosen() are allowed.
  mlir::LogicalResult complete();

  struct Fastest {
    mlir::OwningOpRef<mlir::ModuleOp> module; // after the buffers phase
    int64_t lossChunk = 0;                    // as in RecomputeCandidate
  };
  // Makes the plan of the fastest of all candidates, with fewer probes than complete() needs.
  // `module` is null if these probes do not show which candidate is the fastest. It is also null if
  // the plan takes more than `budget` bytes.
  mlir::FailureOr<Fastest> fastestOfAll(uint64_t budget);

  // Returns about the minimum of the predicted seconds of all micro-steps of an optimizer step: the
  // seconds of plans without kernels that only recompute values. Returns nullopt if there are
  // several kinds of layers, because a short model does not show how many layers each kind has.
  mlir::FailureOr<std::optional<double>> leastSeconds();

  const RecomputeOptions &options() const { return found; }
  const RecomputeChoiceProblem &measured() const { return problem; }
  const std::vector<LossChunk> &lossChunks() const { return chunks; }
  const std::vector<RecomputeCandidate> &candidates() const { return choices; }
  BudgetSearch &budgets() { return *search; }

  // The cost and the benefit of the weights that a candidate keeps. All zero if it keeps none.
  struct KeptWeights {
    std::vector<int64_t> layers;
    uint64_t bytes = 0; // bytes that the kept weights take on each rank
    double seconds = 0; // seconds per optimizer step that they save
  };
  KeptWeights keptWeights(const RecomputeCandidate &candidate) const;

  // Returns the candidate with the fastest plan. Compares `candidate` with others that fit
  // `budget`, have the same chunk of the loss, and recompute the same ops in all layers of a kind.
  // A candidate's seconds are only a sum over probes. If collectives run beside layers, a layer may
  // have to wait for the layers before it, and the sum is not exact.
  mlir::FailureOr<size_t> fastestPlanned(size_t candidate, uint64_t budget);

  // Returns text for reports. It is the number of layers per option ("block x 12, none x 4"), or
  // the job's memory.recompute if no options are chosen for layers.
  std::string nameOf(const RecomputeCandidate &candidate) const;

  // Returns a copy of the start module with the candidate's chunk of the loss. The copy has the
  // options of the layers only as an attribute, which the memory phase applies.
  mlir::OwningOpRef<mlir::ModuleOp> chosen(const RecomputeCandidate &candidate);

  // Returns the candidate's module after the buffers phase. Reuses the last plan made, if it is the
  // candidate's.
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
  // A plan that is made only to be measured. `choice` has the option of each layer of `module`.
  // `lossChunk` is the number of tokens per chunk of the loss; 0: as in `module`.
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
  // outerSeconds[o]: seconds per optimizer step that are missing in RecomputeCandidate::seconds if
  // all layers take option o, such as the extra time of the first and the last layer.
  std::vector<double> outerSeconds;
  // The measures of probes. A key has the options of the probe's layers, and its chunk size.
  std::map<std::pair<std::vector<int64_t>, int64_t>, PlanMeasures> measuresOf;
  std::vector<LossChunk> chunks; // empty if the loss chunk is not chosen
  std::vector<RecomputeCandidate> choices;
  std::unique_ptr<BudgetSearch> search;
  mlir::OwningOpRef<mlir::ModuleOp> last; // the module of candidate `lastCandidate`
  size_t lastCandidate = SIZE_MAX;
  PhaseUse planUse = PhaseUse::Attempt; // the use of plans that makePlan() makes
};

// Returns the recompute options of each layer, without options that keep gathered weights. `model`
// predicts the costs. If it is null, cost::kDefaultRates predict them.
mlir::FailureOr<RecomputeOptions> recomputeOptionsOf(mlir::ModuleOp start, const Config &config,
                                                     const cost::CostModel *model);

} // namespace lmc
