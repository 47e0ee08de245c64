#include "passes/fusion/OptimizerStep.h"

#include <limits>

using namespace mlir;
using namespace lmc;

Scalar lmc::keepUnlessFinite(Scalar norm, Scalar fresh, Scalar old) {
  return select(norm < std::numeric_limits<double>::infinity(), fresh, old);
}

Scalar lmc::clipped(Scalar g, Scalar norm, Scalar clip) {
  Scalar one = g.constant(1.0);
  Scalar scale = minimum(one, clip / (norm + 1e-6));
  return g * select(clip > 0.0, scale, one);
}

SmallVector<Value> OptimizerStep::finish(OpBuilder &b, Operation *op, Value parameter,
                                         ArrayRef<Value> states) {
  auto square = [](Elements s) { return s[0] * s[0]; };
  auto squareOfChange = [](Elements s) {
    Scalar d = s[0] - s[1];
    return d * d;
  };
  auto sumOfRows = [&](ArrayRef<FusionBuilder::Read> reads, auto body) {
    return f.reduce(type.getShape(), 1, type.getElementType(), reads, FusionBuilder::Combine::Add,
                    body);
  };
  SmallVector<Value> results{parameter};
  results.append(states.begin(), states.end());
  results.push_back(sumOfRows({each(parameter), each(f.arg(0))}, squareOfChange));
  results.push_back(sumOfRows({each(parameter)}, square));
  if (op->getNumResults() > results.size()) { // the parameter's copy in the compute dtype
    auto copy = cast<RankedTensorType>(op->getResult(unsigned(results.size())).getType());
    results.push_back(f.map(type.clone(copy.getElementType()), {each(parameter)}, identity));
  }
  // The fusion's results are matrices. They are reshaped to the shapes of the op's results.
  SmallVector<Value> converted;
  for (auto [result, original] : llvm::zip(f.finish(results).getResults(), op->getResults()))
    converted.push_back(
        reshape(b, op->getLoc(), result, cast<RankedTensorType>(original.getType()).getShape()));
  return converted;
}
