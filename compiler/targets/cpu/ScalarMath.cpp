#include "compiler/targets/cpu/ScalarMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"

#include <cmath>

using namespace mlir;

namespace lmc::codegen {
namespace {

Type withElement(Type like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like))
    return vector.clone(element);
  return element;
}

Value splat(ImplicitLocOpBuilder &b, Type type, TypedAttr scalar) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, Attribute(scalar)));
  return arith::ConstantOp::create(b, scalar);
}

// ln 2 = kLn2High + kLn2Low. kLn2High has few bits, so its product with an exponent is exact.
constexpr double kLn2High = 0.693359375, kLn2Low = -2.12194440054690583e-4;

} // namespace

Value ScalarMath::constant(Value like, double value) {
  Type element = getElementTypeOrSelf(like.getType());
  return splat(b, like.getType(), b.getFloatAttr(element, value));
}

Value ScalarMath::integer(Value like, int64_t value) {
  return splat(b, withElement(like.getType(), b.getI32Type()), b.getI32IntegerAttr(int32_t(value)));
}

Value ScalarMath::mulAdd(Value x, Value y, Value z) {
  if (fma)
    return math::FmaOp::create(b, x, y, z);
  return arith::AddFOp::create(b, arith::MulFOp::create(b, x, y), z);
}

// Evaluates a polynomial by Horner's rule. coefficients[0] belongs to the highest power.
Value ScalarMath::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = constant(x, coefficients.front());
  for (double c : coefficients.drop_front())
    sum = mulAdd(sum, x, constant(x, c));
  return sum;
}

// Returns 2^exponent for an exponent in [-126, 127].
Value ScalarMath::powerOfTwo(Value exponent) {
  Value biased = arith::AddIOp::create(b, exponent, integer(exponent, 127));
  Value bits = arith::ShLIOp::create(b, biased, integer(exponent, 23));
  return arith::BitcastOp::create(b, withElement(bits.getType(), b.getF32Type()), bits);
}

// exp(x) = 2^k exp(r) with k = round(x / ln 2), |r| <= ln 2 / 2. The polynomial is that of Cephes'
// expf (S. Moshier, netlib.org/cephes).
Value ScalarMath::exp(Value x) {
  // x is clamped to [-104, 89]: exp(89) is inf and exp(-104) is 0 in f32. NaN stays NaN.
  Value high = constant(x, 89.0), low = constant(x, -104.0);
  Value above = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, x, high);
  x = arith::SelectOp::create(b, above, high, x);
  Value below = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, low);
  x = arith::SelectOp::create(b, below, low, x);

  // The addition of 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the mantissa.
  Value magic = constant(x, 12582912.0);
  Value shifted = mulAdd(x, constant(x, 1.44269504088896341), magic);
  Value k = arith::SubFOp::create(b, shifted, magic);
  Type ints = withElement(x.getType(), b.getI32Type());
  Value exponent = arith::SubIOp::create(b, arith::BitcastOp::create(b, ints, shifted),
                                         arith::BitcastOp::create(b, ints, magic));
  Value r = mulAdd(k, constant(x, -kLn2High), x);
  r = mulAdd(k, constant(x, -kLn2Low), r);
  Value p = polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                           1.6666665459e-1, 5.0000001201e-1});
  Value square = arith::MulFOp::create(b, r, r);
  p = mulAdd(p, square, r);
  p = arith::AddFOp::create(b, p, constant(x, 1.0));

  // 2^k may overflow or be subnormal, so two factors of about 2^(k/2) replace it.
  Value half = arith::ShRSIOp::create(b, exponent, integer(exponent, 1));
  Value rest = arith::SubIOp::create(b, exponent, half);
  p = arith::MulFOp::create(b, p, powerOfTwo(half));
  return arith::MulFOp::create(b, p, powerOfTwo(rest));
}

// log(x) = e ln 2 + log(m) for x = m 2^e and m in [sqrt(1/2), sqrt 2). log(m) is a polynomial in m
// - 1, from Cephes' logf.
Value ScalarMath::log(Value x) {
  Value zero = constant(x, 0.0);
  Type ints = withElement(x.getType(), b.getI32Type());
  // Subnormal numbers are first multiplied by 2^23.
  Value tiny =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, constant(x, 1.17549435082228751e-38));
  Value scaled =
      arith::SelectOp::create(b, tiny, arith::MulFOp::create(b, x, constant(x, 8388608.0)), x);
  Value bits = arith::BitcastOp::create(b, ints, scaled);
  // 0x3f3504f3 is the bit pattern of sqrt(1/2).
  Value offset = arith::SubIOp::create(b, bits, integer(x, 0x3f3504f3));
  Value exponent = arith::ShRSIOp::create(b, offset, integer(x, 23));
  Value mantissa =
      arith::SubIOp::create(b, bits, arith::ShLIOp::create(b, exponent, integer(x, 23)));
  Value e = arith::SIToFPOp::create(b, x.getType(), exponent);
  e = arith::SelectOp::create(b, tiny, arith::SubFOp::create(b, e, constant(x, 23.0)), e);
  Value f = arith::SubFOp::create(b, arith::BitcastOp::create(b, x.getType(), mantissa),
                                  constant(x, 1.0));
  Value square = arith::MulFOp::create(b, f, f);
  Value p = polynomial(f, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                           1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                           3.3333331174e-1});
  p = arith::MulFOp::create(b, arith::MulFOp::create(b, p, f), square);
  p = mulAdd(e, constant(x, kLn2Low), p);
  p = mulAdd(square, constant(x, -0.5), p);
  p = arith::AddFOp::create(b, p, f);
  p = mulAdd(e, constant(x, kLn2High), p);

  double inf = std::numeric_limits<double>::infinity();
  auto choose = [&](arith::CmpFPredicate predicate, Value bound, Value value) {
    p = arith::SelectOp::create(b, arith::CmpFOp::create(b, predicate, x, bound), value, p);
  };
  // UEQ (unordered or equal) is also true for NaN, so +inf and NaN stay unchanged.
  choose(arith::CmpFPredicate::UEQ, constant(x, inf), x);
  choose(arith::CmpFPredicate::OLT, zero, constant(x, std::numeric_limits<double>::quiet_NaN()));
  choose(arith::CmpFPredicate::OEQ, zero, constant(x, -inf));
  return p;
}

// Uses the polynomial of Cephes' tanhf near zero, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign
// of x.
Value ScalarMath::tanh(Value x) {
  Value one = constant(x, 1.0), two = constant(x, 2.0);
  Value magnitude = math::AbsFOp::create(b, x);
  Value e = exp(arith::MulFOp::create(b, magnitude, two));
  Value large = arith::SubFOp::create(
      b, one, arith::DivFOp::create(b, two, arith::AddFOp::create(b, e, one)));
  large = math::CopySignOp::create(b, large, x);
  Value square = arith::MulFOp::create(b, x, x);
  Value p = polynomial(square, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2,
                                1.33314422036e-1, -3.33332819422e-1});
  p = mulAdd(arith::MulFOp::create(b, p, square), x, x);
  Value near = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, magnitude, constant(x, 0.625));
  return arith::SelectOp::create(b, near, p, large);
}

Value ScalarMath::fromBf16(Value x) {
  Type type = x.getType();
  Value bits = arith::BitcastOp::create(b, withElement(type, b.getI16Type()), x);
  bits = arith::ExtUIOp::create(b, withElement(type, b.getI32Type()), bits);
  bits = arith::ShLIOp::create(b, bits, integer(bits, 16));
  return arith::BitcastOp::create(b, withElement(type, b.getF32Type()), bits);
}

Value ScalarMath::toBf16(Value x) {
  Type type = x.getType();
  Value bits = arith::BitcastOp::create(b, withElement(type, b.getI32Type()), x);
  Value upper = arith::ShRUIOp::create(b, bits, integer(bits, 16));
  // Rounds to nearest, ties to even: adds 0x8000 if the last kept bit is 1, otherwise 0x7fff.
  Value odd = arith::AndIOp::create(b, upper, integer(bits, 1));
  Value rounded =
      arith::AddIOp::create(b, arith::AddIOp::create(b, bits, integer(bits, 0x7fff)), odd);
  rounded = arith::ShRUIOp::create(b, rounded, integer(bits, 16));
  Value quiet = arith::OrIOp::create(b, upper, integer(bits, 0x40));
  Value nan = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, x, x);
  Value result = arith::SelectOp::create(b, nan, quiet, rounded);
  result = arith::TruncIOp::create(b, withElement(type, b.getI16Type()), result);
  return arith::BitcastOp::create(b, withElement(type, b.getBF16Type()), result);
}

// The method is that of narrow() in ground/plan/FloatConvert.cpp.
Value ScalarMath::toEightBits(Value x, FloatType format) {
  const llvm::fltSemantics &semantics = format.getFloatSemantics();
  const int64_t shift = 24 - int64_t(APFloat::semanticsPrecision(semantics)),
                smallest =
                    APFloat::semanticsMinExponent(semantics); // of normal numbers: 2^smallest
  const auto largest = int64_t(APFloat::getLargest(semantics).bitcastToAPInt().getZExtValue());
  constexpr int64_t kNaN = 0x7F;
  Type type = x.getType();
  auto logical = [&](Value value, int64_t by) -> Value {
    return arith::ShRUIOp::create(b, value, integer(value, by));
  };
  Value bits = arith::BitcastOp::create(b, withElement(type, b.getI32Type()), x);
  Value sign = arith::AndIOp::create(b, logical(bits, 24), integer(bits, 0x80));
  Value size = arith::AndIOp::create(b, bits, integer(bits, 0x7FFFFFFF));
  const double spacing = std::ldexp(1.0, int(smallest + shift));
  Value sum =
      arith::AddFOp::create(b, arith::BitcastOp::create(b, type, size), constant(x, spacing));
  Value small = arith::SubIOp::create(b, arith::BitcastOp::create(b, bits.getType(), sum),
                                      integer(bits, (smallest + shift + 127) << 23));
  Value odd = arith::AndIOp::create(b, logical(size, shift), integer(bits, 1));
  const int64_t offset = (int64_t(1) << (shift - 1)) - 1 - ((smallest - 1 + 127) << 23);
  Value normal = arith::AddIOp::create(b, size, integer(bits, offset));
  normal = logical(arith::AddIOp::create(b, normal, odd), shift);
  Value isSmall = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, size,
                                        integer(bits, (smallest + 127) << 23));
  Value rounded = arith::SelectOp::create(b, isSmall, small, normal);
  rounded = arith::MinUIOp::create(b, rounded, integer(bits, largest));
  Value isNaN =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, size, integer(bits, 0x7F800000));
  rounded = arith::SelectOp::create(b, isNaN, integer(bits, kNaN), rounded);
  return arith::TruncIOp::create(b, withElement(type, b.getI8Type()),
                                 arith::OrIOp::create(b, rounded, sign));
}

// The exponent and mantissa of a normal code become those of an f32 by a shift and another bias. The
// numbers below the normal ones of the format are normal in f32: they are made as integer times unit.
Value ScalarMath::fromEightBits(Value x, FloatType format) {
  const llvm::fltSemantics &semantics = format.getFloatSemantics();
  const int64_t shift = 24 - int64_t(APFloat::semanticsPrecision(semantics)),
                smallest = APFloat::semanticsMinExponent(semantics),
                most = int64_t(APFloat::getLargest(semantics).bitcastToAPInt().getZExtValue());
  const bool hasInfinity = isa<Float8E5M2Type>(format);
  Type integers = withElement(x.getType(), b.getI32Type());
  Type floats = withElement(x.getType(), b.getF32Type());
  Value bits = arith::ExtUIOp::create(b, integers, x);
  Value size = arith::AndIOp::create(b, bits, integer(bits, 0x7F));
  Value sign = arith::ShLIOp::create(b, arith::AndIOp::create(b, bits, integer(bits, 0x80)),
                                     integer(bits, 24));
  Value normal = arith::AddIOp::create(b, arith::ShLIOp::create(b, size, integer(bits, shift)),
                                       integer(bits, (smallest - 1 + 127) << 23));
  Value small = arith::SIToFPOp::create(b, floats, size);
  small =
      arith::MulFOp::create(b, small, constant(small, std::ldexp(1.0, int(smallest - 23 + shift))));
  Value isSmall = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, size,
                                        integer(bits, int64_t(1) << (23 - shift)));
  Value magnitude =
      arith::SelectOp::create(b, isSmall, arith::BitcastOp::create(b, integers, small), normal);
  if (hasInfinity)
    magnitude = arith::SelectOp::create(
        b, arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, size, integer(bits, most)),
        integer(bits, 0x7F800000), magnitude);
  magnitude =
      arith::SelectOp::create(b,
                              arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, size,
                                                    integer(bits, hasInfinity ? most + 1 : most)),
                              integer(bits, 0x7FC00000), magnitude);
  return arith::BitcastOp::create(b, floats, arith::OrIOp::create(b, magnitude, sign));
}

} // namespace lmc::codegen
