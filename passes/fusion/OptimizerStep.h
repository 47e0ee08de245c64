// The code that the kernels of all optimizers' steps share.
#pragma once

#include "passes/fusion/queue/FusionBuilder.h"

namespace lmc {

// Returns `old` if the gradient norm is NaN or infinite, because such a step must change nothing.
// Otherwise returns `fresh`.
Scalar keepUnlessFinite(Scalar norm, Scalar fresh, Scalar old);

// Returns the clipped gradient: g * (clip > 0 ? min(1, clip / (norm + 1e-6)) : 1).
Scalar clipped(Scalar g, Scalar norm, Scalar clip);

// Builds the region of one step of any optimizer. The first input of the fusion is the parameter, a
// matrix of `type`. The inputs from index `first` on are the scalars of the step.
class OptimizerStep {
public:
  OptimizerStep(FusionBuilder &f, mlir::RankedTensorType type, unsigned first)
      : f(f), type(type), first(first) {}

  FusionBuilder::Read each(mlir::Value tensor) { return {tensor, f.all(2)}; }
  FusionBuilder::Read scalar(unsigned which, unsigned rank = 2) {
    return {f.arg(first + which), f.none(rank)};
  }

  // Ends the region, which computes the new `parameter` and `states`. Returns the results of `op`:
  // the parameter, the states, the sum of squares of the parameter's change, the sum of squares of
  // the parameter and, if `op` has it, a copy of the parameter in the compute dtype.
  llvm::SmallVector<mlir::Value> finish(mlir::OpBuilder &b, mlir::Operation *op,
                                        mlir::Value parameter, llvm::ArrayRef<mlir::Value> states);

protected:
  FusionBuilder &f;
  mlir::RankedTensorType type;
  unsigned first;
};

} // namespace lmc
