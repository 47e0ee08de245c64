#include "passes/fusion/ConvertOptimizer.h"
#include "passes/fusion/OptimizerStep.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace lmc;
using kern::Hero;
using Combine = FusionBuilder::Combine;
using Read = FusionBuilder::Read;

//===-- Direction ---------------------------------------------------------------------------===//

SmallVector<Value> lmc::convertMuonDirection(OpBuilder &b, lm::MuonDirectionOp op) {
  FusionBuilder f(
      b, op.getLoc(), Hero::Elementwise,
      {op.getGradient(), op.getMoment1(), op.getNorm(), op.getMomentum(), op.getClipGrad()},
      "lm.muon_direction");
  RankedTensorType type = tensorTypeOf(op.getMoment1());
  const auto rank = unsigned(type.getRank());
  auto each = [&](Value tensor) { return Read{tensor, f.all(rank)}; };
  auto scalar = [&](unsigned input) { return Read{f.arg(input), f.none(rank)}; };
  // Returns m + (1 - momentum) (clipped g - m). `s` holds g, m, norm, momentum, clip_grad.
  auto lerp = [](Elements s) {
    Scalar g = clipped(s[0], s[2], s[4]);
    Scalar weight = 1.0 - s[3];
    return s[1] + weight * (g - s[1]);
  };
  auto reads = [&](Value moment) {
    return SmallVector<Read>{each(f.arg(0)), each(moment), scalar(2), scalar(3), scalar(4)};
  };
  Value moment = f.map(type, reads(f.arg(1)),
                       [&](Elements s) { return keepUnlessFinite(s[2], lerp(s), s[1]); });
  RankedTensorType directionType = tensorTypeOf(op.getDirection());
  Value direction = op.getNesterov() ? f.map(directionType, reads(moment), lerp)
                                     : f.map(directionType, {each(moment)}, identity);
  return f.finish({moment, direction}).getResults();
}

//===-- Orthogonalization -------------------------------------------------------------------===//

namespace {

// Orthogonalizes a stack of `count` matrices, [count * rows, columns].
class NewtonSchulz {
public:
  NewtonSchulz(OpBuilder &b, lm::OrthogonalizeOp op)
      : b(b), loc(op.getLoc()), op(op), type(tensorTypeOf(op.getX())),
        element(type.getElementType()), wide(arithmeticType(element)), rows(int64_t(op.getRows())),
        columns(type.getDimSize(1)), count(type.getDimSize(0) / rows), isTall(rows > columns) {}

  Value run() {
    Value x = normalized(op.getX());
    for (int64_t number = 0; number < int64_t(op.getNsSteps()); ++number)
      x = step(x);
    return x;
  }

private:
  // Returns max(|x|, eps) of each matrix, [count], where |x| is the Frobenius norm, in x's type.
  Value norms(Value x) {
    Value sums = reduceAlone(b, loc, Hero::RowReduction, x, 1, wide, Combine::Add, "lm.sum_squares",
                             [](Elements s) { return s[0] * s[0]; });
    FusionBuilder f(b, loc, Hero::RowReduction, {reshape(b, loc, sums, {count, rows}), op.getEps()},
                    "lm.norm");
    auto result = RankedTensorType::get({count}, element);
    Value sum = f.reduce({count, rows}, 1, wide, {{f.arg(0), f.all(2)}}, Combine::Add, identity);
    Value norm = f.map(result, {{sum, f.all(1)}}, [](Elements s) { return sqrt(s[0]); });
    return f.finishMap(result, {{norm, f.all(1)}, {f.arg(1), f.none(1)}},
                       [](Elements s) { return maximum(s[0], s[1].to(s[0].type())); });
  }

  Value normalized(Value x) {
    auto stack = RankedTensorType::get({count, rows, columns}, element);
    FusionBuilder f(b, loc, Hero::Elementwise, {reshape(b, loc, x, stack.getShape()), norms(x)},
                    "lm.normalize");
    AffineMap matrix = AffineMap::get(3, 0, b.getAffineDimExpr(0));
    Value result = f.finishMap(stack, {{f.arg(0), f.all(3)}, {f.arg(1), matrix}},
                               [](Elements s) { return s[0] / s[1]; });
    return reshape(b, loc, result, type.getShape());
  }

  // Returns a stack in which matrix i is the product of matrix i of `x` and matrix i of `y`.
  Value product(Value x, Value y, bool transposeX, bool transposeY, Type element) {
    RankedTensorType xType = tensorTypeOf(x), yType = tensorTypeOf(y);
    const int64_t m = transposeX ? xType.getDimSize(1) : xType.getDimSize(0) / count,
                  n = transposeY ? yType.getDimSize(0) / count : yType.getDimSize(1);
    return kern::GemmOp::create(b, loc, RankedTensorType::get({count * m, n}, element), x, y,
                                Value(), Value(), Value(), transposeX, transposeY, count);
  }

  // Returns first * x + second * y, in x's type.
  Value combined(Value x, double first, Value y, double second) {
    FusionBuilder f(b, loc, Hero::Elementwise, {x, y}, "lm.newton_schulz");
    auto times = [](Scalar x, double factor) { return factor == 1.0 ? x : x * factor; };
    return f.finishMap(tensorTypeOf(x), {{f.arg(0), f.all(2)}, {f.arg(1), f.all(2)}},
                       [&](Elements s) { return times(s[0], first) + times(s[1], second); });
  }

  // lm.orthogonalize has the formulas of a wide X. A tall X has A = X^T X and becomes a X + X B^T.
  Value step(Value x) {
    ArrayRef<double> coefficients = op.getNsCoefficients();
    Value gram = product(x, x, isTall, !isTall, element);
    Value polynomial =
        combined(gram, coefficients[1], product(gram, gram, false, false, wide), coefficients[2]);
    Value moved = isTall ? product(x, polynomial, false, true, wide)
                         : product(polynomial, x, false, false, wide);
    return combined(x, coefficients[0], moved, 1.0);
  }

  OpBuilder &b;
  Location loc;
  lm::OrthogonalizeOp op;
  RankedTensorType type;
  Type element, wide;
  int64_t rows, columns, count;
  bool isTall;
};

} // namespace

SmallVector<Value> lmc::convertOrthogonalize(OpBuilder &b, lm::OrthogonalizeOp op) {
  return {NewtonSchulz(b, op).run()};
}

//===-- Scales ------------------------------------------------------------------------------===//

static double scaleOf(lm::MatrixAttr matrix, lm::AdjustLr rule) {
  const auto out = double(matrix.getTransposed() ? matrix.getColumns() : matrix.getRows()),
             in = double(matrix.getFanIn());
  switch (rule) {
  case lm::AdjustLr::Original:
    return std::sqrt(std::max(1.0, out / in));
  case lm::AdjustLr::MatchRmsAdamW:
    return 0.2 * std::sqrt(std::max(out, in));
  case lm::AdjustLr::SpectralUnclamped:
    return std::sqrt(out / in);
  }
  llvm_unreachable("a rule of the enumeration");
}

// Returns a vector of zeros. Every kernel needs an input: this one reads one element of `matrix`.
static Value zeros(OpBuilder &b, Location loc, Value matrix, int64_t count, Type element) {
  FusionBuilder f(b, loc, Hero::Elementwise, matrix, "lm.zeros");
  AffineExpr zero = b.getAffineConstantExpr(0);
  return f.finishMap(RankedTensorType::get({count}, element),
                     {{f.arg(0), AffineMap::get(1, 0, {zero, zero}, b.getContext())}},
                     [&](Elements s) { return s.constant(element, 0.0); });
}

SmallVector<Value> lmc::convertScaleMatrices(OpBuilder &b, lm::ScaleMatricesOp op) {
  Location loc = op.getLoc();
  RankedTensorType type = tensorTypeOf(op.getResult());
  Type element = type.getElementType();
  Value whole = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{type.getNumElements()}, element);
  int64_t end = 0;
  auto pad = [&](int64_t until) {
    if (until > end)
      whole = insertRows(b, loc, zeros(b, loc, op.getParts().front(), until - end, element), whole,
                         end);
  };
  Value block; // a wider matrix that contains several matrices side by side
  for (auto [part, matrix] :
       llvm::zip(op.getParts(), op.getMatrices().getAsRange<lm::MatrixAttr>())) {
    pad(matrix.getOffset());
    const double scale = scaleOf(matrix, op.getAdjustLrFn());
    FusionBuilder f(b, loc, Hero::Elementwise, part, "lm.scale_matrices");
    Value scaled = f.finishMap(tensorTypeOf(part).clone(element), {{f.arg(0), f.all(2)}},
                               [&](Elements s) { return s[0].to(element) * scale; });
    if (const int64_t pitch = matrix.getPitch()) {
      if (matrix.getColumn() == 0)
        block =
            tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{matrix.getRows(), pitch}, element);
      block = insert(b, loc, scaled, block, {0, matrix.getColumn()});
      if (matrix.getColumn() + matrix.getColumns() < pitch)
        continue;
      scaled = block;
    }
    const int64_t count = tensorTypeOf(scaled).getNumElements();
    whole = insertRows(b, loc, reshape(b, loc, scaled, {count}), whole, matrix.getOffset());
    end = matrix.getOffset() + count;
  }
  pad(type.getNumElements());
  return {reshape(b, loc, whole, type.getShape())};
}

//===-- Update ------------------------------------------------------------------------------===//

SmallVector<Value> lmc::convertMuonUpdate(OpBuilder &b, lm::MuonUpdateOp op) {
  enum { Norm, Lr, Decay }; // the scalars, in the order of the inputs
  SmallVector<Value> inputs{op.getParameter(), op.getOrthogonal(), op.getNorm(), op.getLr()};
  const bool decays = bool(op.getWeightDecay());
  if (decays)
    inputs.push_back(op.getWeightDecay());
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, inputs,
                  decays ? "lm.muon_update" : "lm.muon_update_no_decay");
  RankedTensorType type = tensorTypeOf(op.getParameter());
  OptimizerStep step(f, type, 2);
  SmallVector<Read> reads{step.each(f.arg(0)), step.each(f.arg(1)), step.scalar(Norm),
                          step.scalar(Lr)};
  if (decays)
    reads.push_back(step.scalar(Decay));
  Value parameter = f.map(type, reads, [&](Elements s) {
    Scalar decayed = s[0], lr = s[3];
    if (decays)
      decayed = s[0] * (1.0 - lr * s[4]);
    Scalar update = lr * s[1];
    return keepUnlessFinite(s[2], decayed - update, s[0]);
  });
  return step.finish(b, op, parameter, {});
}
