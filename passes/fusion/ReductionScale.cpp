#include "passes/fusion/ReductionScale.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace lmc;

// The layout of an f32: bits of the mantissa, mask of the exponent, bias of the exponent.
static constexpr int64_t kMantissaBits = 23, kExponentMask = 0xff, kBias = 127;
// The scale keeps sums over ranks below 2^(kHighest + 1) in magnitude. The largest f16 is 65504.
static constexpr int64_t kHighest = 13;
// 2^k and 2^-k are normal f32 numbers for |k| <= kLimit.
static constexpr int64_t kLimit = 126;

Scalar lmc::reductionScale(Scalar largest, int64_t ranks, bool inverse) {
  Builder types(largest.type().getContext());
  Scalar bits = largest.make<arith::BitcastOp>(types.getI32Type(), largest);
  Scalar mask = bits.constant(kExponentMask);
  Scalar magnitude = bits.make<arith::ShRUIOp>(bits, bits.constant(kMantissaBits));
  Scalar exponent = bits.make<arith::AndIOp>(magnitude, mask);
  const int64_t spread = llvm::Log2_64_Ceil(uint64_t(ranks));
  Scalar power = double(kHighest - spread + kBias) - exponent;
  power = minimum(maximum(power, -kLimit), kLimit);
  Scalar biased = inverse ? double(kBias) - power : power + kBias;
  return bits.make<arith::BitcastOp>(
      types.getF32Type(), bits.make<arith::ShLIOp>(biased, bits.constant(kMantissaBits)));
}

// The scale is 2^e with e = E - L, where 2^E <= largest < 2^(E+1), and L is the exponent of the
// largest number of the format. If the mantissa of `largest` is above that number's, e is one more.
Scalar lmc::fp8Scale(Scalar largest, FloatType format) {
  int exponent = 0; // the largest number of the format is mantissa 2^(exponent - 1)
  const float most = llvm::APFloat::getLargest(format.getFloatSemantics()).convertToFloat();
  const double mantissa = 2 * std::frexp(most, &exponent);
  Builder types(largest.type().getContext());
  Scalar bits = largest.make<arith::BitcastOp>(types.getI32Type(), largest);
  // Adding this carries into the exponent where the mantissa is above that of the largest number.
  constexpr double kOne = int64_t(1) << kMantissaBits;
  Scalar carried = bits + (kOne - 1 - (mantissa - 1) * kOne);
  Scalar width = bits.constant(kMantissaBits), offset = bits.constant(exponent - 1);
  Scalar raised = bits.make<arith::ShRUIOp>(carried, width);
  Scalar biased = maximum(raised - offset, 1);
  Scalar placed = bits.make<arith::ShLIOp>(biased, width);
  Scalar scale = bits.make<arith::BitcastOp>(types.getF32Type(), placed);
  return select(largest < std::numeric_limits<double>::infinity(), scale, largest);
}
