#include "passes/fusion/MomentCode.h"

using namespace mlir;
using namespace lmc;

static constexpr double kLargest1 = 127, kLargest2 = 255;

static Type i32(Scalar x) { return IntegerType::get(x.type().getContext(), 32); }
static Type i8(Scalar x) { return IntegerType::get(x.type().getContext(), 8); }

// Returns the integer (i32) nearest to largest * root.
static Scalar nearestCode(Scalar root, double largest) {
  return root.make<arith::FPToSIOp>(i32(root), root * largest + 0.5);
}

Scalar lmc::decodeMoment1(Scalar code, Scalar scale) {
  Scalar wide = code.make<arith::ExtSIOp>(i32(code), code);
  // 127 * float(1 / 127) is exactly 1, so the code of the largest element decodes to the scale.
  Scalar r = wide.make<arith::SIToFPOp>(scale.type(), wide) * (1 / kLargest1);
  Scalar square = r * r, signedSquare = r * abs(r);
  return square * signedSquare * scale;
}

Scalar lmc::decodeMoment2(Scalar code, Scalar scale) {
  Scalar wide = code.make<arith::ExtUIOp>(i32(code), code);
  Scalar power = wide.make<arith::SIToFPOp>(scale.type(), wide) * (1 / kLargest2);
  for (int i = 0; i < 3; ++i)
    power = power * power;
  return power * scale;
}

Scalar lmc::encodeMoment1(Scalar moment, Scalar inverse) {
  Scalar c = nearestCode(sqrt(sqrt(abs(moment) * inverse)), kLargest1);
  Scalar negative = moment < 0.0;
  c = select(negative, 0.0 - c, c);
  return c.make<arith::TruncIOp>(i8(c), c);
}

Scalar lmc::encodeMoment2(Scalar moment, Scalar inverse) {
  Scalar c = nearestCode(sqrt(sqrt(sqrt(moment * inverse))), kLargest2);
  Scalar positive = moment > 0.0, least = select(positive, c.constant(1), c.constant(0));
  return c.make<arith::TruncIOp>(i8(c), maximum(c, least));
}
