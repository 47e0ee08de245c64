#include "passes/fusion/ConvertOptimizer.h"

#include "passes/fusion/FusionBuilder.h"
#include "passes/fusion/MomentCode.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;
using namespace lmc;
using kern::Hero;
using Combine = FusionBuilder::Combine;
using Read = FusionBuilder::Read;

// The smallest scale of a moment block; its inverse is still finite.
static constexpr double kSmallestScale = std::numeric_limits<float>::min();

//===-- Formulas ----------------------------------------------------------------------------===//

// Returns `fresh`, or `old` if the gradient norm is NaN or infinite: then the step must change
// nothing.
static Value keepUnlessFinite(OpBuilder &b, Location loc, Value norm, Value fresh, Value old) {
  Value infinity = constant(b, loc, norm.getType(), std::numeric_limits<double>::infinity());
  Value finite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, norm, infinity);
  return arith::SelectOp::create(b, loc, finite, fresh, old).getResult();
}

// Returns the clipped gradient: g * (clip > 0 ? min(1, clip / (norm + 1e-6)) : 1).
static Value clipped(OpBuilder &b, Location loc, Value g, Value norm, Value clip) {
  Type t = g.getType();
  Value one = constant(b, loc, t, 1.0);
  Value ratio = arith::DivFOp::create(
      b, loc, clip, arith::AddFOp::create(b, loc, norm, constant(b, loc, t, 1e-6)));
  Value scale = arith::MinimumFOp::create(b, loc, one, ratio);
  Value on = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, clip,
                                   constant(b, loc, t, 0.0));
  return arith::MulFOp::create(b, loc, g, arith::SelectOp::create(b, loc, on, scale, one));
}

namespace {

// Builds the region of one step of any optimizer. The first input of the fusion is the parameter, a
// matrix of `type`. The scalars of the step are the inputs from index `first` on. Element-wise ops
// read them as operands; the code generators move computations on scalars alone out of the loops.
class OptimizerStep {
public:
  OptimizerStep(FusionBuilder &f, RankedTensorType type, unsigned first)
      : f(f), type(type), first(first) {}

  Read each(Value tensor) { return {tensor, f.all(2)}; }
  Read scalar(unsigned which, unsigned rank = 2) { return {f.arg(first + which), f.none(rank)}; }

  // Ends the region, which computed the new `parameter` and the new `states`. Returns all results
  // of `op`, in their shapes.
  SmallVector<Value> finish(OpBuilder &b, lm::OptimizerOpInterface op, Value parameter,
                            ArrayRef<Value> states);

protected:
  FusionBuilder &f;
  RankedTensorType type;
  unsigned first;
};

// Builds the region of one step of AdamW.
class AdamWStep : public OptimizerStep {
public:
  AdamWStep(FusionBuilder &f, RankedTensorType type, unsigned first, bool decays)
      : OptimizerStep(f, type, first), decays(decays) {}

  // The scalars, in the order of the fusion's inputs.
  enum Scalar { Norm, Lr, Beta1, Beta2, Eps, Correction1, Correction2, Clip, Decay };
  template <typename Op> static void appendScalars(Op op, SmallVectorImpl<Value> &inputs) {
    inputs.append({op.getNorm(), op.getLr(), op.getBeta1(), op.getBeta2(), op.getEps(),
                   op.getBiasCorrection1(), op.getBiasCorrection2(), op.getClipGrad()});
    if (op.getWeightDecay())
      inputs.push_back(op.getWeightDecay());
  }

  Value moment1(Value gradient, Value old);
  Value moment2(Value gradient, Value old);
  Value parameter(Value old, Value moment1, Value moment2);

private:
  bool decays;
};

} // namespace

SmallVector<Value> OptimizerStep::finish(OpBuilder &b, lm::OptimizerOpInterface op, Value parameter,
                                         ArrayRef<Value> states) {
  auto square = [](OpBuilder &b, Location loc, ValueRange s) -> Value {
    return arith::MulFOp::create(b, loc, s[0], s[0]);
  };
  auto squareOfChange = [](OpBuilder &b, Location loc, ValueRange s) -> Value {
    Value d = arith::SubFOp::create(b, loc, s[0], s[1]);
    return arith::MulFOp::create(b, loc, d, d);
  };
  auto sumOfRows = [&](ArrayRef<Read> reads, auto body) {
    return f.reduce(type.getShape(), 1, type.getElementType(), reads, Combine::Add, body);
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
    converted.push_back(reshape(b, op->getLoc(), result,
                                cast<RankedTensorType>(original.getType()).getShape()));
  return converted;
}

Value AdamWStep::moment1(Value gradient, Value old) {
  return f.map(type,
               {each(gradient), each(old), scalar(Norm), scalar(Beta1), scalar(Clip)},
               [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
                 Value g = clipped(b, loc, s[0], s[2], s[4]);
                 Value weight = arith::SubFOp::create(
                     b, loc, constant(b, loc, s[3].getType(), 1.0), s[3]);
                 Value step = arith::MulFOp::create(b, loc, weight,
                                                    arith::SubFOp::create(b, loc, g, s[1]));
                 return keepUnlessFinite(b, loc, s[2], arith::AddFOp::create(b, loc, s[1], step),
                                         s[1]);
               });
}

Value AdamWStep::moment2(Value gradient, Value old) {
  return f.map(type,
               {each(gradient), each(old), scalar(Norm), scalar(Beta2), scalar(Clip)},
               [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
                 Value g = clipped(b, loc, s[0], s[2], s[4]);
                 Value weight = arith::SubFOp::create(
                     b, loc, constant(b, loc, s[3].getType(), 1.0), s[3]);
                 Value square = arith::MulFOp::create(
                     b, loc, arith::MulFOp::create(b, loc, weight, g), g);
                 Value fresh = arith::AddFOp::create(
                     b, loc, arith::MulFOp::create(b, loc, s[3], s[1]), square);
                 return keepUnlessFinite(b, loc, s[2], fresh, s[1]);
               });
}

Value AdamWStep::parameter(Value old, Value moment1, Value moment2) {
  SmallVector<Read> reads{each(old),    each(moment1), each(moment2),
                          scalar(Norm), scalar(Lr),    scalar(Eps),
                          scalar(Correction1), scalar(Correction2)};
  if (decays)
    reads.push_back(scalar(Decay));
  return f.map(type, reads, [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
    Value decayed = s[0];
    if (decays) {
      Value factor = arith::SubFOp::create(b, loc, constant(b, loc, s[0].getType(), 1.0),
                                           arith::MulFOp::create(b, loc, s[4], s[8]));
      decayed = arith::MulFOp::create(b, loc, s[0], factor);
    }
    Value root = arith::DivFOp::create(b, loc, math::SqrtOp::create(b, loc, s[2]),
                                       math::SqrtOp::create(b, loc, s[7]));
    Value denominator = arith::AddFOp::create(b, loc, root, s[5]);
    Value rate = arith::DivFOp::create(b, loc, s[4], s[6]);
    Value update = arith::MulFOp::create(b, loc, rate,
                                         arith::DivFOp::create(b, loc, s[1], denominator));
    return keepUnlessFinite(b, loc, s[3], arith::SubFOp::create(b, loc, decayed, update), s[0]);
  });
}

//===-- lm.adamw ----------------------------------------------------------------------------===//

static SmallVector<Value> convertAdamW(OpBuilder &b, lm::AdamWOp op) {
  SmallVector<Value> inputs;
  for (Value tensor : {op.getParameter(), op.getGradient(), op.getMoment1(), op.getMoment2()})
    inputs.push_back(asRows(b, op.getLoc(), tensor));
  AdamWStep::appendScalars(op, inputs);
  bool decays = bool(op.getWeightDecay());
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, inputs,
                  decays ? "lm.adamw" : "lm.adamw_no_decay");
  AdamWStep step(f, cast<RankedTensorType>(inputs[0].getType()), 4, decays);
  Value m = step.moment1(f.arg(1), f.arg(2)), v = step.moment2(f.arg(1), f.arg(3));
  return step.finish(b, op, step.parameter(f.arg(0), m, v), {m, v});
}

//===-- lm.adamw8bit ------------------------------------------------------------------------===//

namespace {

// One of the two moments: which inputs of the fusion hold it, and the functions of its code.
struct CodedMoment {
  unsigned codes, scale; // indices of the fusion's inputs
  Value (*decode)(OpBuilder &, Location, Value code, Value scale);
  Value (*encode)(OpBuilder &, Location, Value moment, Value inverse);
};

constexpr CodedMoment kMoment1{2, 3, decodeMoment1, encodeMoment1};
constexpr CodedMoment kMoment2{4, 5, decodeMoment2, encodeMoment2};

// Decodes and encodes 8-bit moments. Each row of the region is one moment block, which has one
// scale.
class CodedMoments {
public:
  CodedMoments(FusionBuilder &f, AdamWStep &step, RankedTensorType type)
      : f(f), step(step), type(type) {}

  Value decode(const CodedMoment &moment) {
    return f.map(type, {step.each(f.arg(moment.codes)), {f.arg(moment.scale), f.outer(2)}},
                 [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
                   return moment.decode(b, loc, s[0], s[1]);
                 });
  }

  struct Coded {
    Value codes, scale;
  };
  Coded encode(const CodedMoment &moment, Value fresh);

private:
  FusionBuilder &f;
  AdamWStep &step;
  RankedTensorType type;
};

} // namespace

// Returns the codes and scales of a new moment. If the gradient norm is not finite, the old codes
// and scales are returned: encoding the decoded values again could change them.
CodedMoments::Coded CodedMoments::encode(const CodedMoment &moment, Value fresh) {
  auto scales = RankedTensorType::get({type.getDimSize(0)}, type.getElementType());
  Value top = f.reduce(type.getShape(), 1, type.getElementType(), {step.each(fresh)}, Combine::Max,
                       [](OpBuilder &b, Location loc, ValueRange s) -> Value {
                         return math::AbsFOp::create(b, loc, s[0]);
                       });
  Value largest = f.map(scales, {{top, f.all(1)}},
                        [](OpBuilder &b, Location loc, ValueRange s) -> Value {
                          return arith::MaximumFOp::create(
                              b, loc, s[0], constant(b, loc, s[0].getType(), kSmallestScale));
                        });
  Value inverse = f.map(scales, {{largest, f.all(1)}},
                        [](OpBuilder &b, Location loc, ValueRange s) -> Value {
                          return arith::DivFOp::create(b, loc,
                                                       constant(b, loc, s[0].getType(), 1.0), s[0]);
                        });
  Value scale = f.map(
      scales,
      {{largest, f.all(1)}, {f.arg(moment.scale), f.all(1)}, step.scalar(AdamWStep::Norm, 1)},
      [](OpBuilder &b, Location loc, ValueRange s) -> Value {
        return keepUnlessFinite(b, loc, s[2], s[0], s[1]);
      });
  Value codes = f.map(
      type.clone(IntegerType::get(type.getContext(), 8)),
      {step.each(fresh), {inverse, f.outer(2)}, step.each(f.arg(moment.codes)),
       step.scalar(AdamWStep::Norm)},
      [&](OpBuilder &b, Location loc, ValueRange s) -> Value {
        return keepUnlessFinite(b, loc, s[3], moment.encode(b, loc, s[0], s[1]), s[2]);
      });
  return {codes, scale};
}

static SmallVector<Value> convertAdamW8bit(OpBuilder &b, lm::AdamW8bitOp op) {
  Location loc = op.getLoc();
  int64_t elements = cast<RankedTensorType>(op.getParameter().getType()).getNumElements();
  int64_t blocks = elements / lm::AdamW8bitOp::kBlock;
  auto inBlocks = [&](Value tensor) {
    return reshape(b, loc, tensor, {blocks, lm::AdamW8bitOp::kBlock});
  };
  auto perBlock = [&](Value scale) { return reshape(b, loc, scale, {blocks}); };
  SmallVector<Value> inputs{inBlocks(op.getParameter()),       inBlocks(op.getGradient()),
                            inBlocks(op.getMoment1()),         perBlock(op.getMoment1Scale()),
                            inBlocks(op.getMoment2()),         perBlock(op.getMoment2Scale())};
  AdamWStep::appendScalars(op, inputs);
  bool decays = bool(op.getWeightDecay());
  FusionBuilder f(b, loc, Hero::RowReduction, inputs,
                  decays ? "lm.adamw8bit" : "lm.adamw8bit_no_decay");
  auto type = cast<RankedTensorType>(inputs[0].getType());
  AdamWStep step(f, type, 6, decays);
  CodedMoments coded(f, step, type);
  Value m = step.moment1(f.arg(1), coded.decode(kMoment1));
  Value v = step.moment2(f.arg(1), coded.decode(kMoment2));
  Value p = step.parameter(f.arg(0), m, v);
  CodedMoments::Coded m8 = coded.encode(kMoment1, m), v8 = coded.encode(kMoment2, v);
  return step.finish(b, op, p, {m8.codes, m8.scale, v8.codes, v8.scale});
}

//===-- All ---------------------------------------------------------------------------------===//

SmallVector<Value> lmc::convertOptimizer(OpBuilder &b, lm::OptimizerOpInterface op) {
  return llvm::TypeSwitch<Operation *, SmallVector<Value>>(op)
      .Case([&](lm::AdamWOp op) { return convertAdamW(b, op); })
      .Case([&](lm::AdamW8bitOp op) { return convertAdamW8bit(b, op); })
      .Default([](Operation *) { return SmallVector<Value>(); });
}
