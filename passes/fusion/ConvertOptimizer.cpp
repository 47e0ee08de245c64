#include "passes/fusion/ConvertOptimizer.h"

#include "passes/fusion/MomentCode.h"
#include "passes/fusion/OptimizerStep.h"

#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;
using namespace lmc;
using kern::Hero;
using Combine = FusionBuilder::Combine;
using Read = FusionBuilder::Read;

// The minimum scale of a moment block, so that 1 / scale is finite.
static constexpr double kSmallestScale = std::numeric_limits<float>::min();

//===-- AdamW -------------------------------------------------------------------------------===//

namespace {

class AdamWStep : public OptimizerStep {
public:
  AdamWStep(FusionBuilder &f, RankedTensorType type, unsigned first, bool decays)
      : OptimizerStep(f, type, first), decays(decays) {}

  // The scalar inputs of the fusion, in their order.
  enum { Norm, Lr, Beta1, Beta2, Eps, Correction1, Correction2, Clip, Decay };
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

Value AdamWStep::moment1(Value gradient, Value old) {
  return f.map(type, {each(gradient), each(old), scalar(Norm), scalar(Beta1), scalar(Clip)},
               [&](Elements s) {
                 Scalar g = clipped(s[0], s[2], s[4]);
                 Scalar weight = 1.0 - s[3];
                 return keepUnlessFinite(s[2], s[1] + weight * (g - s[1]), s[1]);
               });
}

Value AdamWStep::moment2(Value gradient, Value old) {
  return f.map(type, {each(gradient), each(old), scalar(Norm), scalar(Beta2), scalar(Clip)},
               [&](Elements s) {
                 Scalar g = clipped(s[0], s[2], s[4]);
                 Scalar weight = 1.0 - s[3];
                 Scalar square = weight * g * g;
                 return keepUnlessFinite(s[2], s[3] * s[1] + square, s[1]);
               });
}

Value AdamWStep::parameter(Value old, Value moment1, Value moment2) {
  SmallVector<Read> reads{each(old),  each(moment1), each(moment2),       scalar(Norm),
                          scalar(Lr), scalar(Eps),   scalar(Correction1), scalar(Correction2)};
  if (decays)
    reads.push_back(scalar(Decay));
  return f.map(type, reads, [&](Elements s) {
    Scalar decayed = s[0], lr = s[4];
    if (decays)
      decayed = s[0] * (1.0 - lr * s[8]);
    Scalar root = sqrt(s[2]) / sqrt(s[7]);
    Scalar denominator = root + s[5];
    Scalar rate = lr / s[6];
    Scalar update = rate * (s[1] / denominator);
    return keepUnlessFinite(s[3], decayed - update, s[0]);
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

// The inputs of one of the two moments, and the functions that decode and encode it.
struct CodedMoment {
  unsigned codes, scale; // indices of inputs of the fusion
  Scalar (*decode)(Scalar code, Scalar scale);
  Scalar (*encode)(Scalar moment, Scalar inverse);
};

constexpr CodedMoment kMoment1{2, 3, decodeMoment1, encodeMoment1};
constexpr CodedMoment kMoment2{4, 5, decodeMoment2, encodeMoment2};

// Builds the region of one step of AdamW with 8-bit moments. Each row is one moment block, which
// has one scale.
class AdamW8bitStep : public AdamWStep {
public:
  using AdamWStep::AdamWStep;

  Value decode(const CodedMoment &moment) {
    return f.map(type, {each(f.arg(moment.codes)), {f.arg(moment.scale), f.outer(2)}},
                 [&](Elements s) { return moment.decode(s[0], s[1]); });
  }
  std::pair<Value, Value> encode(const CodedMoment &moment, Value fresh);
};

} // namespace

// Returns the codes and scales of the new moment `fresh`. If the gradient norm is not finite,
// returns the old codes and scales, because decoding and encoding them again could change them.
std::pair<Value, Value> AdamW8bitStep::encode(const CodedMoment &moment, Value fresh) {
  auto scales = RankedTensorType::get({type.getDimSize(0)}, type.getElementType());
  Value top = f.reduce(type.getShape(), 1, type.getElementType(), {each(fresh)}, Combine::Max,
                       [](Elements s) { return abs(s[0]); });
  Value largest =
      f.map(scales, {{top, f.all(1)}}, [](Elements s) { return maximum(s[0], kSmallestScale); });
  Value inverse = f.map(scales, {{largest, f.all(1)}}, [](Elements s) { return 1.0 / s[0]; });
  Value scale =
      f.map(scales, {{largest, f.all(1)}, {f.arg(moment.scale), f.all(1)}, scalar(Norm, 1)},
            [](Elements s) { return keepUnlessFinite(s[2], s[0], s[1]); });
  Value codes =
      f.map(type.clone(IntegerType::get(type.getContext(), 8)),
            {each(fresh), {inverse, f.outer(2)}, each(f.arg(moment.codes)), scalar(Norm)},
            [&](Elements s) { return keepUnlessFinite(s[3], moment.encode(s[0], s[1]), s[2]); });
  return {codes, scale};
}

static SmallVector<Value> convertAdamW8bit(OpBuilder &b, lm::AdamW8bitOp op) {
  Location loc = op.getLoc();
  int64_t blocks = tensorTypeOf(op.getParameter()).getNumElements() / lm::AdamW8bitOp::kBlock;
  auto inBlocks = [&](Value tensor) {
    return reshape(b, loc, tensor, {blocks, lm::AdamW8bitOp::kBlock});
  };
  auto perBlock = [&](Value scale) { return reshape(b, loc, scale, {blocks}); };
  SmallVector<Value> inputs{inBlocks(op.getParameter()), inBlocks(op.getGradient()),
                            inBlocks(op.getMoment1()),   perBlock(op.getMoment1Scale()),
                            inBlocks(op.getMoment2()),   perBlock(op.getMoment2Scale())};
  AdamWStep::appendScalars(op, inputs);
  bool decays = bool(op.getWeightDecay());
  FusionBuilder f(b, loc, Hero::RowReduction, inputs,
                  decays ? "lm.adamw8bit" : "lm.adamw8bit_no_decay");
  AdamW8bitStep step(f, tensorTypeOf(inputs[0]), 6, decays);
  Value m = step.moment1(f.arg(1), step.decode(kMoment1));
  Value v = step.moment2(f.arg(1), step.decode(kMoment2));
  Value p = step.parameter(f.arg(0), m, v);
  auto [codes1, scales1] = step.encode(kMoment1, m);
  auto [codes2, scales2] = step.encode(kMoment2, v);
  return step.finish(b, op, p, {codes1, scales1, codes2, scales2});
}

//===-- lm.balance_bias ---------------------------------------------------------------------===//

static SmallVector<Value> convertBalanceBias(OpBuilder &b, lm::BalanceBiasOp op) {
  SmallVector<Value> inputs{asRows(b, op.getLoc(), op.getParameter()),
                            asRows(b, op.getLoc(), op.getGradient()), op.getNorm(), op.getSpeed()};
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, inputs, "lm.balance_bias");
  auto type = cast<RankedTensorType>(inputs[0].getType());
  OptimizerStep step(f, type, 2);
  const double balanced = op.getBalanced().convertToDouble();
  Value fresh =
      f.map(type, {step.each(f.arg(0)), step.each(f.arg(1)), step.scalar(0), step.scalar(1)},
            [&](Elements s) {
              Scalar wanted = s[1].constant(balanced), more = s[0] + s[3], less = s[0] - s[3];
              Scalar moved = select(s[1] < wanted, more, select(s[1] > wanted, less, s[0]));
              return keepUnlessFinite(s[2], moved, s[0]);
            });
  return step.finish(b, op, fresh, {});
}

//===-- All ---------------------------------------------------------------------------------===//

SmallVector<Value> lmc::convertOptimizer(OpBuilder &b, lm::OptimizerOpInterface op) {
  return llvm::TypeSwitch<Operation *, SmallVector<Value>>(op)
      .Case([&](lm::AdamWOp op) { return convertAdamW(b, op); })
      .Case([&](lm::AdamW8bitOp op) { return convertAdamW8bit(b, op); })
      .Case([&](lm::BalanceBiasOp op) { return convertBalanceBias(b, op); })
      .Default([](Operation *) { return SmallVector<Value>(); });
}
