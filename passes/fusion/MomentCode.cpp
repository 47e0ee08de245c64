#include "passes/fusion/MomentCode.h"

#include "passes/fusion/queue/FusionBuilder.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace lmc;

static constexpr double kLargest1 = 127, kLargest2 = 255;

// Returns the integer (i32) nearest to largest * root.
static Value nearestCode(OpBuilder &b, Location loc, Value root, double largest) {
  Type type = root.getType();
  Value scaled = arith::MulFOp::create(b, loc, root, constant(b, loc, type, largest));
  Value shifted = arith::AddFOp::create(b, loc, scaled, constant(b, loc, type, 0.5));
  return arith::FPToSIOp::create(b, loc, b.getI32Type(), shifted);
}

static Value squareRoots(OpBuilder &b, Location loc, Value x, unsigned times) {
  for (unsigned i = 0; i < times; ++i)
    x = math::SqrtOp::create(b, loc, x);
  return x;
}

static Value integer(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantIntOp::create(b, loc, value, 32);
}

Value lmc::decodeMoment1(OpBuilder &b, Location loc, Value code, Value scale) {
  Value wide = arith::ExtSIOp::create(b, loc, b.getI32Type(), code);
  Value c = arith::SIToFPOp::create(b, loc, scale.getType(), wide);
  // 127 times the f32 that is nearest to 1 / 127 is exactly 1, so the largest element decodes to
  // the scale.
  Value r = arith::MulFOp::create(b, loc, c, constant(b, loc, c.getType(), 1 / kLargest1));
  Value square = arith::MulFOp::create(b, loc, r, r);
  Value signedSquare = arith::MulFOp::create(b, loc, r, math::AbsFOp::create(b, loc, r));
  Value power = arith::MulFOp::create(b, loc, square, signedSquare);
  return arith::MulFOp::create(b, loc, power, scale);
}

Value lmc::decodeMoment2(OpBuilder &b, Location loc, Value code, Value scale) {
  Value wide = arith::ExtUIOp::create(b, loc, b.getI32Type(), code);
  Value c = arith::SIToFPOp::create(b, loc, scale.getType(), wide);
  Value power = arith::MulFOp::create(b, loc, c, constant(b, loc, c.getType(), 1 / kLargest2));
  for (int i = 0; i < 3; ++i)
    power = arith::MulFOp::create(b, loc, power, power);
  return arith::MulFOp::create(b, loc, power, scale);
}

Value lmc::encodeMoment1(OpBuilder &b, Location loc, Value moment, Value inverse) {
  Value x = arith::MulFOp::create(b, loc, math::AbsFOp::create(b, loc, moment), inverse);
  Value c = nearestCode(b, loc, squareRoots(b, loc, x, 2), kLargest1);
  Value negative = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, moment,
                                         constant(b, loc, moment.getType(), 0.0));
  Value opposite = arith::SubIOp::create(b, loc, integer(b, loc, 0), c);
  c = arith::SelectOp::create(b, loc, negative, opposite, c);
  return arith::TruncIOp::create(b, loc, b.getI8Type(), c);
}

Value lmc::encodeMoment2(OpBuilder &b, Location loc, Value moment, Value inverse) {
  Value x = arith::MulFOp::create(b, loc, moment, inverse);
  Value c = nearestCode(b, loc, squareRoots(b, loc, x, 3), kLargest2);
  Value positive = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, moment,
                                         constant(b, loc, moment.getType(), 0.0));
  Value least = arith::SelectOp::create(b, loc, positive, integer(b, loc, 1), integer(b, loc, 0));
  return arith::TruncIOp::create(b, loc, b.getI8Type(),
                                 arith::MaxSIOp::create(b, loc, c, least));
}
