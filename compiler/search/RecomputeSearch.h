// memory.recompute = "auto": which option each layer takes, judged by the packed plan.
//
// The options that lm-analyze-recompute finds are measured on real plans: probes, in which
// the layers take the options in turn, say what a layer of each option keeps, needs and
// takes. From these numbers come the rungs: choices for all layers from the fastest to the
// smallest, the uniform ones (and so the named modes) among them. Which rung a budget gets
// is decided by packed bytes alone (BudgetSearch.h); none depends on the budget.
#pragma once

#include "compiler/search/LayerMeasures.h"
#include "compiler/phases/Phases.h"
#include "compiler/algorithms/BudgetSearch.h"
#include "compiler/algorithms/RecomputeChoice.h"
#include "compiler/cost/DeviceSpec.h"
#include "passes/memory/RecomputeOptions.h"

#include "mlir/IR/OwningOpRef.h"

#include <memory>

namespace lmc {

struct RecomputeRung {
  std::vector<int64_t> options; // per layer, an index into its kind's
  double seconds = 0;           // of all layers in a step, predicted
  uint64_t boundBytes = 0;      // as far as probes show, no plan of it takes less
};

// A layer's costs, per kind and option, where the problem's do not hold: first or beside a layer
// of another option, and last. Empty: they hold everywhere.
struct PositionCosts {
  std::vector<std::vector<LayerOption>> border, last;
};

// Choices in order of seconds: about `steps` that the problem's budgets give between its
// fastest and its smallest, and for each option the choice in which every layer takes it, as
// far as its kind has that many.
std::vector<RecomputeRung> recomputeRungs(const RecomputeChoiceProblem &problem, int steps,
                                          const PositionCosts &positions = {});

class RecomputeSearch {
public:
  // Makes the same model with so many layers, as it is after the distribute phase.
  using MakeShorter = std::function<mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>(int64_t)>;

  // `start` is a module that went through the distribute phase, and must outlive the search,
  // as must `config`, `spec` and `phases`. Probes are of the shorter model where it has the
  // same kinds of layers, so that they do not grow with the model.
  static mlir::FailureOr<std::unique_ptr<RecomputeSearch>>
  create(mlir::ModuleOp start, const Config &config, const cost::DeviceSpec &spec,
         PhaseRunner &phases, const MakeShorter &makeShorter = nullptr);

  const RecomputeOptions &options() const { return found; }
  const RecomputeChoiceProblem &measured() const { return problem; }
  const std::vector<RecomputeRung> &rungs() const { return choices; }
  BudgetSearch &budgets() { return *search; }

  // "block x 12, none x 4"
  std::string nameOf(const RecomputeRung &rung) const;

  // The start module with the rung's choice to apply.
  mlir::OwningOpRef<mlir::ModuleOp> chosen(const RecomputeRung &rung);

  // The rung's module after the buffers phase: the one that was measured last, if it is that.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> planned(size_t rung);

private:
  RecomputeSearch(mlir::ModuleOp start, const Config &config, const cost::DeviceSpec &spec,
                  PhaseRunner &phases)
      : start(start), config(config), spec(spec), phases(phases) {}

  // A model to measure options on: `module` is `owned`, or the start.
  struct Probed {
    mlir::OwningOpRef<mlir::ModuleOp> owned;
    mlir::ModuleOp module;
    RecomputeOptions options;
  };

  mlir::LogicalResult probe(const MakeShorter &makeShorter);
  mlir::FailureOr<Probed> probed(const MakeShorter &makeShorter, size_t layers);
  mlir::FailureOr<PlanMeasures> measure(mlir::ModuleOp probed, const RecomputeOptions &options,
                                        mlir::ArrayRef<int64_t> choice);
  std::optional<RecomputeOptions> optionsLike(mlir::ModuleOp shorter) const;
  mlir::LogicalResult plan(mlir::ModuleOp module, Phase from);

  mlir::ModuleOp start;
  const Config &config;
  const cost::DeviceSpec &spec;
  PhaseRunner &phases;
  RecomputeOptions found;
  RecomputeChoiceProblem problem;
  PositionCosts positions;
  std::vector<RecomputeRung> choices;
  std::unique_ptr<BudgetSearch> search;
  mlir::OwningOpRef<mlir::ModuleOp> last; // of the rung measured last
  size_t lastRung = SIZE_MAX;
};

// The options of each layer as the job's device spec prices them.
mlir::FailureOr<RecomputeOptions> recomputeOptionsOf(mlir::ModuleOp start, const Config &config,
                                                     const cost::DeviceSpec *spec);

} // namespace lmc
