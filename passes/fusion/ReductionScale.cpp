#include "passes/fusion/ReductionScale.h"

#include "llvm/Support/MathExtras.h"

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
