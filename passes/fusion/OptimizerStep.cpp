#include "passes/fusion/OptimizerStep.h"

#include <limits>

using namespace mlir;
using namespace lmc;

Value lmc::keepUnlessFinite(OpBuilder &b, Location loc, Value norm, Value fresh, Value old) {
  Value infinity = constant(b, loc, norm.getType(), std::numeric_limits<double>::infinity());
  Value finite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, norm, infinity);
  return arith::SelectOp::create(b, loc, finite, fresh, old).getResult();
}

Value lmc::clipped(OpBuilder &b, Location loc, Value g, Value norm, Value clip) {
  Type t = g.getType();
  Value one = constant(b, loc, t, 1.0);
  Value ratio = arith::DivFOp::create(
      b, loc, clip, arith::AddFOp::create(b, loc, norm, constant(b, loc, t, 1e-6)));
  Value scale = arith::MinimumFOp::create(b, loc, one, ratio);
  Value on =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, clip, constant(b, loc, t, 0.0));
  return arith::MulFOp::create(b, loc, g, arith::SelectOp::create(b, loc, on, scale, one));
}

SmallVector<Value> OptimizerStep::finish(OpBuilder &b, Operation *op, Value parameter,
                                         ArrayRef<Value> states) {
  auto square = [](OpBuilder &b, Location loc, ValueRange s) -> Value {
    return arith::MulFOp::create(b, loc, s[0], s[0]);
  };
  auto squareOfChange = [](OpBuilder &b, Location loc, ValueRange s) -> Value {
    Value d = arith::SubFOp::create(b, loc, s[0], s[1]);
    return arith::MulFOp::create(b, loc, d, d);
  };
  auto sumOfRows = [&](ArrayRef<FusionBuilder::Read> reads, auto body) {
    return f.reduce(type.getShape(), 1, type.getElementType(), reads, FusionBuilder::Combine::Add,
                    body);
  };
  SmallVector<Value> results{parameter};
  results.append(states.begin(), states.end());
  results.push_back(sumOfRows({each(parameter), each(f.arg(0))}, squareOfChange));
  results.push_back(sumOfRows({each(parameter)}, square));
  if (op->getNumResults() > results.size()) { // a copy in the compute dtype
    auto copy = cast<RankedTensorType>(op->getResult(unsigned(results.size())).getType());
    results.push_back(f.map(type.clone(copy.getElementType()), {each(parameter)},
                            [](OpBuilder &, Location, ValueRange s) -> Value { return s[0]; }));
  }
  // The fusion's results are matrices.
  SmallVector<Value> converted;
  for (auto [result, original] : llvm::zip(f.finish(results).getResults(), op->getResults()))
    converted.push_back(
        reshape(b, op->getLoc(), result, cast<RankedTensorType>(original.getType()).getShape()));
  return converted;
}
