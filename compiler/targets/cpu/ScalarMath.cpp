#include "compiler/targets/cpu/ScalarMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

Type withElement(Type like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like))
    return vector.clone(element);
  return element;
}

Value splat(OpBuilder &b, Location loc, Type type, TypedAttr scalar) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vector, Attribute(scalar)));
  return arith::ConstantOp::create(b, loc, scalar);
}

// ln 2 as the sum of two constants. The first ends in zero bits, so its product with an exponent is
// exact.
constexpr double kLn2High = 0.693359375, kLn2Low = -2.12194440054690583e-4;

} // namespace

Value ScalarMath::constant(Value like, double value) {
  Type element = getElementTypeOrSelf(like.getType());
  return splat(builder, loc, like.getType(), builder.getFloatAttr(element, value));
}

Value ScalarMath::integer(Value like, int64_t value) {
  return splat(builder, loc, withElement(like.getType(), builder.getI32Type()),
               builder.getI32IntegerAttr(int32_t(value)));
}

Value ScalarMath::mulAdd(Value a, Value b, Value c) {
  if (fma)
    return math::FmaOp::create(builder, loc, a, b, c);
  return arith::AddFOp::create(builder, loc, arith::MulFOp::create(builder, loc, a, b), c);
}

// Evaluates a polynomial by Horner's rule; the coefficient of the highest power comes first.
Value ScalarMath::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = constant(x, coefficients.front());
  for (double c : coefficients.drop_front())
    sum = mulAdd(sum, x, constant(x, c));
  return sum;
}

// Returns 2^exponent for an exponent in [-126, 127].
Value ScalarMath::powerOfTwo(Value exponent) {
  Value biased = arith::AddIOp::create(builder, loc, exponent, integer(exponent, 127));
  Value bits = arith::ShLIOp::create(builder, loc, biased, integer(exponent, 23));
  return arith::BitcastOp::create(builder, loc, withElement(bits.getType(), builder.getF32Type()),
                                  bits);
}

// Uses exp(x) = 2^k exp(r) with k = round(x / ln 2), |r| <= ln 2 / 2. The polynomial for exp(r) is
// the minimax polynomial of Cephes' expf (S. Moshier, netlib.org/cephes).
Value ScalarMath::exp(Value x) {
  auto &b = builder;
  // Above 89 the result is inf, below -104 it is 0. NaN fails both comparisons and stays NaN.
  Value high = constant(x, 89.0), low = constant(x, -104.0);
  Value above = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, high);
  x = arith::SelectOp::create(b, loc, above, high, x);
  Value below = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, low);
  x = arith::SelectOp::create(b, loc, below, low, x);

  // The addition of 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the mantissa.
  Value magic = constant(x, 12582912.0);
  Value shifted = mulAdd(x, constant(x, 1.44269504088896341), magic);
  Value k = arith::SubFOp::create(b, loc, shifted, magic);
  Type ints = withElement(x.getType(), b.getI32Type());
  Value exponent = arith::SubIOp::create(b, loc, arith::BitcastOp::create(b, loc, ints, shifted),
                                         arith::BitcastOp::create(b, loc, ints, magic));
  Value r = mulAdd(k, constant(x, -kLn2High), x);
  r = mulAdd(k, constant(x, -kLn2Low), r);
  Value p = polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                           1.6666665459e-1, 5.0000001201e-1});
  Value square = arith::MulFOp::create(b, loc, r, r);
  p = mulAdd(p, square, r);
  p = arith::AddFOp::create(b, loc, p, constant(x, 1.0));

  // 2^k may overflow or be subnormal, so the result is multiplied by two factors of about 2^(k/2).
  Value half = arith::ShRSIOp::create(b, loc, exponent, integer(exponent, 1));
  Value rest = arith::SubIOp::create(b, loc, exponent, half);
  p = arith::MulFOp::create(b, loc, p, powerOfTwo(half));
  return arith::MulFOp::create(b, loc, p, powerOfTwo(rest));
}

// Uses log(x) = e ln 2 + log(m) with m in [sqrt(1/2), sqrt 2). The polynomial in m - 1 is that of
// Cephes' logf.
Value ScalarMath::log(Value x) {
  auto &b = builder;
  Value zero = constant(x, 0.0);
  Type ints = withElement(x.getType(), b.getI32Type());
  // Subnormal numbers are first multiplied by 2^23.
  Value tiny = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x,
                                     constant(x, 1.17549435082228751e-38));
  Value scaled = arith::SelectOp::create(
      b, loc, tiny, arith::MulFOp::create(b, loc, x, constant(x, 8388608.0)), x);
  Value bits = arith::BitcastOp::create(b, loc, ints, scaled);
  // 0x3f3504f3 is the bit pattern of sqrt(1/2).
  Value offset = arith::SubIOp::create(b, loc, bits, integer(x, 0x3f3504f3));
  Value exponent = arith::ShRSIOp::create(b, loc, offset, integer(x, 23));
  Value mantissa =
      arith::SubIOp::create(b, loc, bits, arith::ShLIOp::create(b, loc, exponent, integer(x, 23)));
  Value e = arith::SIToFPOp::create(b, loc, x.getType(), exponent);
  e = arith::SelectOp::create(b, loc, tiny, arith::SubFOp::create(b, loc, e, constant(x, 23.0)), e);
  Value f = arith::SubFOp::create(b, loc, arith::BitcastOp::create(b, loc, x.getType(), mantissa),
                                  constant(x, 1.0));
  Value square = arith::MulFOp::create(b, loc, f, f);
  Value p = polynomial(f, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                           1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                           3.3333331174e-1});
  p = arith::MulFOp::create(b, loc, arith::MulFOp::create(b, loc, p, f), square);
  p = mulAdd(e, constant(x, kLn2Low), p);
  p = mulAdd(square, constant(x, -0.5), p);
  p = arith::AddFOp::create(b, loc, p, f);
  p = mulAdd(e, constant(x, kLn2High), p);

  double inf = std::numeric_limits<double>::infinity();
  auto choose = [&](arith::CmpFPredicate predicate, Value bound, Value value) {
    p = arith::SelectOp::create(b, loc, arith::CmpFOp::create(b, loc, predicate, x, bound), value,
                                p);
  };
  // The predicate UEQ (unordered or equal) is also true if x is NaN: +inf and NaN stay unchanged. A
  // negative x gives NaN.
  choose(arith::CmpFPredicate::UEQ, constant(x, inf), x);
  choose(arith::CmpFPredicate::OLT, zero, constant(x, std::numeric_limits<double>::quiet_NaN()));
  choose(arith::CmpFPredicate::OEQ, zero, constant(x, -inf));
  return p;
}

// Uses the polynomial of Cephes' tanhf near zero, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign
// of x.
Value ScalarMath::tanh(Value x) {
  auto &b = builder;
  Value one = constant(x, 1.0), two = constant(x, 2.0);
  Value magnitude = math::AbsFOp::create(b, loc, x);
  Value e = exp(arith::MulFOp::create(b, loc, magnitude, two));
  Value large = arith::SubFOp::create(
      b, loc, one, arith::DivFOp::create(b, loc, two, arith::AddFOp::create(b, loc, e, one)));
  large = math::CopySignOp::create(b, loc, large, x);
  Value square = arith::MulFOp::create(b, loc, x, x);
  Value p = polynomial(square, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2,
                                1.33314422036e-1, -3.33332819422e-1});
  p = mulAdd(arith::MulFOp::create(b, loc, p, square), x, x);
  Value near =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, magnitude, constant(x, 0.625));
  return arith::SelectOp::create(b, loc, near, p, large);
}

Value ScalarMath::fromBf16(Value x) {
  auto &b = builder;
  Type type = x.getType();
  Value bits = arith::BitcastOp::create(b, loc, withElement(type, b.getI16Type()), x);
  bits = arith::ExtUIOp::create(b, loc, withElement(type, b.getI32Type()), bits);
  bits = arith::ShLIOp::create(b, loc, bits, integer(bits, 16));
  return arith::BitcastOp::create(b, loc, withElement(type, b.getF32Type()), bits);
}

Value ScalarMath::toBf16(Value x) {
  auto &b = builder;
  Type type = x.getType();
  Value bits = arith::BitcastOp::create(b, loc, withElement(type, b.getI32Type()), x);
  Value upper = arith::ShRUIOp::create(b, loc, bits, integer(bits, 16));
  // Rounds to nearest, ties to even: adds half a unit of the last bit that is kept. If that bit is
  // 0, it adds 1 less, counted in the lowest bit of the f32.
  Value odd = arith::AndIOp::create(b, loc, upper, integer(bits, 1));
  Value rounded = arith::AddIOp::create(
      b, loc, arith::AddIOp::create(b, loc, bits, integer(bits, 0x7fff)), odd);
  rounded = arith::ShRUIOp::create(b, loc, rounded, integer(bits, 16));
  Value quiet = arith::OrIOp::create(b, loc, upper, integer(bits, 0x40));
  Value nan = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
  Value result = arith::SelectOp::create(b, loc, nan, quiet, rounded);
  result = arith::TruncIOp::create(b, loc, withElement(type, b.getI16Type()), result);
  return arith::BitcastOp::create(b, loc, withElement(type, b.getBF16Type()), result);
}

} // namespace lmc::codegen
