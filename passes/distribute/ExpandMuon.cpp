// dist-expand-muon: replaces lm.muon by its parts, and lets ranks that divide a parameter gather
// the direction of a step. Passes.td shows an example.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "runtime/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

namespace lmc {
#define GEN_PASS_DEF_EXPANDMUONPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using dist::Axis;

// The scalar that holds the rank's position along the axis `shard`.
static constexpr StringLiteral kShardRank = "run.shard_rank";

namespace {

class MuonExpander {
public:
  MuonExpander(ModuleOp module, dist::MeshOp mesh)
      : symbols(module), b(module.getContext()), mesh(mesh) {}

  void expand(lm::MuonOp step);

private:
  Value shardRank(lm::MuonOp step);
  Value orthogonalize(lm::MuonOp step, Value direction, RankedTensorType type);

  SymbolTable symbols;
  OpBuilder b;
  dist::MeshOp mesh;
};

} // namespace

// Returns the rank's position along the axis `shard`, of the type of `step`'s scalars.
Value MuonExpander::shardRank(lm::MuonOp step) {
  auto variable = symbols.lookup<lm::VariableOp>(kShardRank);
  if (!variable) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(mesh);
    variable = lm::VariableOp::create(b, mesh.getLoc(), kShardRank, lm::VariableKind::Scalar,
                                      step.getLr().getType(),
                                      lm::InitAttr::get(b.getContext(), lm::InitKind::None));
    variable.setStepValue(lm::StepValue::ShardRank);
    symbols.insert(variable);
  }
  return lm::LoadOp::create(b, step.getLoc(), variable.getType(), kShardRank);
}

// Returns the orthogonalized matrices of `direction`, as a tensor of `type`.
Value MuonExpander::orthogonalize(lm::MuonOp step, Value direction, RankedTensorType type) {
  return lm::OrthogonalizeOp::create(b, step.getLoc(), type, direction, step.getEps(),
                                     step.getMatricesAttr(), step.getNsStepsAttr(),
                                     step.getNsCoefficientsAttr(), step.getAdjustLrFnAttr());
}

void MuonExpander::expand(lm::MuonOp step) {
  b.setInsertionPoint(step);
  Location loc = step.getLoc();
  auto type = cast<RankedTensorType>(step.getParameter().getType());
  Type element = step.getNsDtype() ? *step.getNsDtype() : type.getElementType();
  auto direction = lm::MuonDirectionOp::create(
      b, loc, type, type.clone(element), step.getGradient(), step.getMoment1(), step.getNorm(),
      step.getMomentum(), step.getClipGrad(), step.getNesterovAttr());
  Value orthogonal;
  if (mesh.ranksAlong(Axis::Shard) == 1) {
    orthogonal = orthogonalize(step, direction.getDirection(), type);
  } else {
    Value all = createCollective<dist::AllGatherOp>(b, loc, mesh, Axis::Shard,
                                                    direction.getDirection(), /*backward=*/false);
    auto whole = cast<RankedTensorType>(all.getType()).clone(type.getElementType());
    orthogonal =
        lm::OwnRowsOp::create(b, loc, type, orthogonalize(step, all, whole), shardRank(step));
  }
  SmallVector<Type> types{type, step.getUpdateSq().getType(), step.getParamSq().getType()};
  if (step.getCompute())
    types.push_back(step.getCompute().getType());
  auto update = lm::MuonUpdateOp::create(
      b, loc, types,
      step.getWeightDecay()
          ? ValueRange{step.getParameter(), orthogonal, step.getNorm(), step.getLr(),
                       step.getWeightDecay()}
          : ValueRange{step.getParameter(), orthogonal, step.getNorm(), step.getLr()});
  SmallVector<Value> results{update.getNewParameter(), direction.getNewMoment1(),
                             update.getUpdateSq(), update.getParamSq()};
  if (step.getCompute())
    results.push_back(update.getCompute());
  step->replaceAllUsesWith(results);
  step->erase();
}

namespace {
struct ExpandMuonPass : lmc::impl::ExpandMuonPassBase<ExpandMuonPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    auto optimizer = symbols.lookup<func::FuncOp>(names::kOptimizer);
    auto mesh = symbols.lookup<dist::MeshOp>(kMesh);
    if (!optimizer || !mesh) {
      module.emitOpError("has no @optimizer or no mesh; run lm-insert-optimizer and "
                         "dist-shard-state first");
      return signalPassFailure();
    }
    MuonExpander expander(module, mesh);
    for (auto step : llvm::make_early_inc_range(optimizer.getBody().front().getOps<lm::MuonOp>()))
      expander.expand(step);
  }
};
} // namespace
