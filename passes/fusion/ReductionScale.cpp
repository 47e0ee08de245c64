#include "passes/fusion/ReductionScale.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace lmc;

// The parts of an f32.
static constexpr int64_t kMantissaBits = 23, kExponentMask = 0xff, kBias = 127;
// Sums over ranks stay below 2^(kHighest + 1).
static constexpr int64_t kHighest = 13;
// 2^k and 2^-k are both normal numbers for |k| up to this.
static constexpr int64_t kLimit = 126;

Value lmc::reductionScale(OpBuilder &b, Location loc, Value largest, int64_t ranks, bool inverse) {
  auto integer = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(value)));
  };
  Value bits = arith::BitcastOp::create(b, loc, b.getI32Type(), largest);
  Value exponent =
      arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, bits, integer(kMantissaBits)),
                            integer(kExponentMask));
  const int64_t spread = llvm::Log2_64_Ceil(uint64_t(ranks));
  Value power = arith::SubIOp::create(b, loc, integer(kHighest - spread + kBias), exponent);
  power = arith::MaxSIOp::create(b, loc, power, integer(-kLimit));
  power = arith::MinSIOp::create(b, loc, power, integer(kLimit));
  Value biased = inverse ? arith::SubIOp::create(b, loc, integer(kBias), power).getResult()
                         : arith::AddIOp::create(b, loc, power, integer(kBias)).getResult();
  Value shifted = arith::ShLIOp::create(b, loc, biased, integer(kMantissaBits));
  return arith::BitcastOp::create(b, loc, b.getF32Type(), shifted);
}
