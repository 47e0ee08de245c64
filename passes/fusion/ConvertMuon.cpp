#include "passes/fusion/ConvertMuon.h"

#include "dialects/lm/TensorTypes.h"
#include "passes/fusion/OptimizerStep.h"

#include "mlir/Dialect/Math/IR/Math.h"

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
  // m + (1 - momentum) (g - m), where s are g, m, norm, momentum, clip_grad.
  auto lerp = [](OpBuilder &b, Location loc, ValueRange s) -> Value {
    Value g = clipped(b, loc, s[0], s[2], s[4]);
    Value weight = arith::SubFOp::create(b, loc, constant(b, loc, s[3].getType(), 1.0), s[3]);
    return arith::AddFOp::create(
        b, loc, s[1],
        arith::MulFOp::create(b, loc, weight, arith::SubFOp::create(b, loc, g, s[1])));
  };
  auto reads = [&](Value moment) {
    return SmallVector<Read>{each(f.arg(0)), each(moment), scalar(2), scalar(3), scalar(4)};
  };
  Value moment = f.map(type, reads(f.arg(1)), [&](OpBuilder &b, Location loc, ValueRange s) {
    return keepUnlessFinite(b, loc, s[2], lerp(b, loc, s), s[1]);
  });
  RankedTensorType directionType = tensorTypeOf(op.getDirection());
  Value direction = op.getNesterov()
                        ? f.map(directionType, reads(moment), lerp)
                        : f.map(directionType, {each(moment)},
                                [](OpBuilder &, Location, ValueRange s) -> Value { return s[0]; });
  return f.finish({moment, direction}).getResults();
}

//===-- Orthogonalization -------------------------------------------------------------------===//

namespace {

// Orthogonalizes one matrix.
class NewtonSchulz {
public:
  NewtonSchulz(OpBuilder &b, lm::OrthogonalizeOp op, RankedTensorType type)
      : b(b), loc(op.getLoc()), op(op), type(type), element(type.getElementType()),
        wide(arithmeticType(element)), isTall(type.getDimSize(0) > type.getDimSize(1)) {}

  // Returns, in `result`'s element type, the orthogonalized `x` times `scale`.
  Value run(Value x, double scale, Type result);

private:
  Value normOf(Value x);
  Value normalized(Value x);
  Value product(Value x, Value y, bool transposeX, bool transposeY, Type element);
  // Returns first * x + second * y in `x`'s type, times `scale` in the element type `result`.
  Value combined(Value x, double first, Value y, double second, double scale, Type result);
  Value step(Value x, double scale, Type result);

  OpBuilder &b;
  Location loc;
  lm::OrthogonalizeOp op;
  RankedTensorType type;
  Type element, wide;
  bool isTall;
};

} // namespace

// Returns max(|x|, eps), rounded as x is.
Value NewtonSchulz::normOf(Value x) {
  FusionBuilder rows(b, loc, Hero::RowReduction, x, "lm.sum_squares");
  Value sums =
      rows.finish(rows.reduce(type.getShape(), 1, wide, {{rows.arg(0), rows.all(2)}}, Combine::Add,
                              [](OpBuilder &b, Location loc, ValueRange s) -> Value {
                                return arith::MulFOp::create(b, loc, s[0], s[0]);
                              }))
          .getResult(0);
  FusionBuilder f(b, loc, Hero::RowReduction, {sums, op.getEps()}, "lm.norm");
  Value sum = f.reduce({type.getDimSize(0)}, 0, wide, {{f.arg(0), f.all(1)}}, Combine::Add,
                       [](OpBuilder &, Location, ValueRange s) -> Value { return s[0]; });
  Value norm = f.map(RankedTensorType::get({}, element), {{sum, f.all(0)}},
                     [](OpBuilder &b, Location loc, ValueRange s) -> Value {
                       return math::SqrtOp::create(b, loc, s[0]);
                     });
  Value clamped = f.map(
      RankedTensorType::get({}, element), {{norm, f.all(0)}, {f.arg(1), f.all(0)}},
      [](OpBuilder &b, Location loc, ValueRange s) -> Value {
        return arith::MaximumFOp::create(b, loc, s[0], convertFloat(b, loc, s[1], s[0].getType()));
      });
  return f.finish(clamped).getResult(0);
}

Value NewtonSchulz::normalized(Value x) {
  FusionBuilder f(b, loc, Hero::Elementwise, {x, normOf(x)}, "lm.normalize");
  return f
      .finish(f.map(type, {{f.arg(0), f.all(2)}, {f.arg(1), f.none(2)}},
                    [](OpBuilder &b, Location loc, ValueRange s) -> Value {
                      return arith::DivFOp::create(b, loc, s[0], s[1]);
                    }))
      .getResult(0);
}

Value NewtonSchulz::product(Value x, Value y, bool transposeX, bool transposeY, Type element) {
  const int64_t rows = tensorTypeOf(x).getDimSize(transposeX ? 1 : 0),
                columns = tensorTypeOf(y).getDimSize(transposeY ? 0 : 1);
  return kern::GemmOp::create(b, loc, RankedTensorType::get({rows, columns}, element), x, y,
                              Value(), Value(), transposeX, transposeY);
}

Value NewtonSchulz::combined(Value x, double first, Value y, double second, double scale,
                             Type result) {
  FusionBuilder f(b, loc, Hero::Elementwise, {x, y}, "lm.newton_schulz");
  Value sum = f.map(tensorTypeOf(x), {{f.arg(0), f.all(2)}, {f.arg(1), f.all(2)}},
                    [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
                      auto times = [&](Value value, double factor) -> Value {
                        return factor == 1.0
                                   ? value
                                   : arith::MulFOp::create(
                                         b, loc, value, constant(b, loc, value.getType(), factor))
                                         .getResult();
                      };
                      return arith::AddFOp::create(b, loc, times(s[0], first), times(s[1], second));
                    });
  if (scale != 1.0 || result != element)
    sum = f.map(tensorTypeOf(x).clone(result), {{sum, f.all(2)}},
                [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
                  Value value = convertFloat(b, loc, s[0], arithmeticType(result));
                  return arith::MulFOp::create(b, loc, value,
                                               constant(b, loc, value.getType(), scale));
                });
  return f.finish(sum).getResult(0);
}

// A tall matrix is the transpose of the X of the formulas: A = X^T X, X = a X + X B^T.
Value NewtonSchulz::step(Value x, double scale, Type result) {
  ArrayRef<double> coefficients = op.getNsCoefficients();
  Value gram = product(x, x, isTall, !isTall, element);
  Value polynomial = combined(gram, coefficients[1], product(gram, gram, false, false, wide),
                              coefficients[2], 1.0, element);
  Value moved = isTall ? product(x, polynomial, false, true, wide)
                       : product(polynomial, x, false, false, wide);
  return combined(x, coefficients[0], moved, 1.0, scale, result);
}

Value NewtonSchulz::run(Value x, double scale, Type result) {
  x = normalized(x);
  const auto steps = int64_t(op.getNsSteps());
  for (int64_t number = 1; number < steps; ++number)
    x = step(x, 1.0, element);
  if (steps > 0)
    return step(x, scale, result);
  FusionBuilder f(b, loc, Hero::Elementwise, x, "lm.newton_schulz");
  return f
      .finish(f.map(type.clone(result), {{f.arg(0), f.all(2)}},
                    [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
                      Value value = convertFloat(b, loc, s[0], arithmeticType(result));
                      return arith::MulFOp::create(b, loc, value,
                                                   constant(b, loc, value.getType(), scale));
                    }))
      .getResult(0);
}

static double scaleOf(lm::MatrixAttr matrix, lm::AdjustLr rule) {
  const auto out = double(matrix.getRows()), in = double(matrix.getFanIn());
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

// Returns elements [offset, offset + count) of a vector.
static Value elementsOf(OpBuilder &b, Location loc, Value vector, int64_t offset, int64_t count) {
  RankedTensorType type = tensorTypeOf(vector);
  if (type.getDimSize(0) == count)
    return vector;
  return tensor::ExtractSliceOp::create(b, loc, type.clone(ArrayRef<int64_t>{count}), vector,
                                        SmallVector<OpFoldResult>{b.getIndexAttr(offset)},
                                        SmallVector<OpFoldResult>{b.getIndexAttr(count)},
                                        SmallVector<OpFoldResult>{b.getIndexAttr(1)});
}

// Returns `whole`, a vector, with the elements from `offset` on replaced by those of `part`.
static Value inserted(OpBuilder &b, Location loc, Value part, Value whole, int64_t offset) {
  const int64_t count = tensorTypeOf(part).getNumElements();
  part = reshape(b, loc, part, {count});
  if (tensorTypeOf(whole).getDimSize(0) == count)
    return part;
  return tensor::InsertSliceOp::create(b, loc, part, whole,
                                       SmallVector<OpFoldResult>{b.getIndexAttr(offset)},
                                       SmallVector<OpFoldResult>{b.getIndexAttr(count)},
                                       SmallVector<OpFoldResult>{b.getIndexAttr(1)});
}

// Returns `count` zeros, in the place of the elements of `vector` from `offset` on.
static Value zerosFor(OpBuilder &b, Location loc, Value vector, int64_t offset, int64_t count,
                      Type element) {
  FusionBuilder f(b, loc, Hero::Elementwise, elementsOf(b, loc, vector, offset, count), "lm.zeros");
  return f
      .finish(f.map(RankedTensorType::get({count}, element), {{f.arg(0), f.all(1)}},
                    [&](OpBuilder &b, Location loc, ValueRange) -> Value {
                      return constant(b, loc, element, 0.0);
                    }))
      .getResult(0);
}

SmallVector<Value> lmc::convertOrthogonalize(OpBuilder &b, lm::OrthogonalizeOp op) {
  Location loc = op.getLoc();
  RankedTensorType type = tensorTypeOf(op.getDirection()),
                   resultType = tensorTypeOf(op.getResult());
  const int64_t elements = type.getNumElements();
  Value vector = reshape(b, loc, op.getDirection(), {elements});
  Value whole =
      tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{elements}, resultType.getElementType());
  int64_t end = 0;
  auto pad = [&](int64_t until) {
    if (until > end)
      whole =
          inserted(b, loc, zerosFor(b, loc, vector, end, until - end, resultType.getElementType()),
                   whole, end);
  };
  for (auto matrix : op.getMatrices().getAsRange<lm::MatrixAttr>()) {
    const int64_t rows = matrix.getRows(), columns = matrix.getColumns();
    pad(matrix.getOffset());
    Value x = reshape(b, loc, elementsOf(b, loc, vector, matrix.getOffset(), rows * columns),
                      {rows, columns});
    Value orthogonal =
        NewtonSchulz(b, op, tensorTypeOf(x))
            .run(x, scaleOf(matrix, op.getAdjustLrFn()), resultType.getElementType());
    whole = inserted(b, loc, orthogonal, whole, matrix.getOffset());
    end = matrix.getOffset() + rows * columns;
  }
  pad(elements);
  return {reshape(b, loc, whole, resultType.getShape())};
}

//===-- Update ------------------------------------------------------------------------------===//

SmallVector<Value> lmc::convertMuonUpdate(OpBuilder &b, lm::MuonUpdateOp op) {
  enum Scalar { Norm, Lr, Decay };
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
  Value parameter = f.map(type, reads, [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
    Value decayed = s[0];
    if (decays) {
      Value factor = arith::SubFOp::create(b, loc, constant(b, loc, s[0].getType(), 1.0),
                                           arith::MulFOp::create(b, loc, s[3], s[4]));
      decayed = arith::MulFOp::create(b, loc, s[0], factor);
    }
    Value update = arith::MulFOp::create(b, loc, s[3], s[1]);
    return keepUnlessFinite(b, loc, s[2], arith::SubFOp::create(b, loc, decayed, update), s[0]);
  });
  return step.finish(b, op, parameter, {});
}
