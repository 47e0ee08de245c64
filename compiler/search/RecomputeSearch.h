// memory.recompute = "auto": the choice of one recompute option per layer, judged by the packed
// plan.
//
// The options come from lm-analyze-recompute. They are measured on real plans, the probes, in which
// consecutive layers take different options: a probe gives the bytes that a layer of each option
// keeps and needs, and its time. From these numbers the search builds candidates: choices for all
// layers, from the fastest to the one with the fewest bytes. Uniform choices, and so the named
// modes, are among them. The candidates do not depend on the budget. Which candidate a budget gets
// is decided by packed bytes alone (BudgetSearch.h).
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
  std::vector<int64_t> options; // per layer, an index into its kind's options
  double seconds = 0;           // predicted, of all layers in a step
  uint64_t boundBytes = 0;      // predicted from probes: no plan of this candidate takes less
};

// A layer's costs, per kind and option, at places where those of the problem do not hold: `border`
// for a layer that is first or beside a layer of another option, `last` for the last layer. Empty
// lists mean that the problem's costs hold everywhere.
struct PositionCosts {
  std::vector<std::vector<LayerOption>> border, last;
};

// Returns choices in order of seconds: up to about `steps` choices along the trade-off between the
// problem's fastest and its smallest, and for each option index the choice in which every layer
// takes that option (a kind with fewer options takes its last).
std::vector<RecomputeRung> recomputeRungs(const RecomputeChoiceProblem &problem, int steps,
                                          const PositionCosts &positions = {});

class RecomputeSearch {
public:
  // Makes the same model with the given number of layers, as it is after the distribute phase.
  using MakeShorter = std::function<mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>(int64_t)>;

  // `start` is a module that went through the distribute phase. It must outlive the search, as must
  // `config`, `spec` and `phases`. Probes use a shorter model if it has the same kinds of layers,
  // so that the cost of probing does not grow with the model.
  static mlir::FailureOr<std::unique_ptr<RecomputeSearch>>
  create(mlir::ModuleOp start, const Config &config, const cost::DeviceSpec &spec,
         PhaseRunner &phases, const MakeShorter &makeShorter = nullptr);

  const RecomputeOptions &options() const { return found; }
  const RecomputeChoiceProblem &measured() const { return problem; }
  const std::vector<RecomputeRung> &rungs() const { return choices; }
  BudgetSearch &budgets() { return *search; }

  // "block x 12, none x 4"
  std::string nameOf(const RecomputeRung &rung) const;

  // Returns a copy of the start module that carries the candidate's choice but has not applied it.
  mlir::OwningOpRef<mlir::ModuleOp> chosen(const RecomputeRung &rung);

  // Returns the candidate's module after the buffers phase. The module of the latest measurement is
  // reused if it is this candidate's.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> planned(size_t rung);

private:
  RecomputeSearch(mlir::ModuleOp start, const Config &config, const cost::DeviceSpec &spec,
                  PhaseRunner &phases)
      : start(start), config(config), spec(spec), phases(phases) {}

  // A model to measure options on: `module` is `owned`, or the start module when `owned` is null.
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
  mlir::OwningOpRef<mlir::ModuleOp> last; // the module of `lastRung`
  size_t lastRung = SIZE_MAX;
};

// Returns the options of each layer, with costs from the job's device spec.
mlir::FailureOr<RecomputeOptions> recomputeOptionsOf(mlir::ModuleOp start, const Config &config,
                                                     const cost::DeviceSpec *spec);

} // namespace lmc
