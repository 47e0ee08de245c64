#include "passes/fusion/Scalar.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace lmc;

Value lmc::convertFloat(OpBuilder &b, Location loc, Value value, Type type) {
  if (value.getType() == type || !isa<FloatType>(type) || !isa<FloatType>(value.getType()))
    return value;
  if (value.getType().getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, loc, type, value);
  return arith::TruncFOp::create(b, loc, type, value);
}

static bool isFloat(Scalar x) { return isa<FloatType>(getElementTypeOrSelf(x.type())); }

Scalar Scalar::constant(double number) const {
  Type element = getElementTypeOrSelf(type());
  TypedAttr one = isFloat(*this) ? TypedAttr(b->getFloatAttr(element, number))
                                 : b->getIntegerAttr(element, int64_t(number));
  if (auto vector = dyn_cast<VectorType>(type()))
    one = DenseElementsAttr::get(vector, Attribute(one));
  return make<arith::ConstantOp>(one);
}

template <typename FloatOp, typename IntegerOp> static Scalar binary(Scalar x, Scalar y) {
  return isFloat(x) ? x.make<FloatOp>(x, y) : x.make<IntegerOp>(x, y);
}
using FloatCompare = arith::CmpFPredicate;
using IntegerCompare = arith::CmpIPredicate;
static Scalar compare(FloatCompare floats, IntegerCompare integers, Scalar x, Scalar y) {
  return isFloat(x) ? x.make<arith::CmpFOp>(floats, x, y) : x.make<arith::CmpIOp>(integers, x, y);
}

Scalar lmc::operator+(Scalar x, Scalar y) { return binary<arith::AddFOp, arith::AddIOp>(x, y); }
Scalar lmc::operator-(Scalar x, Scalar y) { return binary<arith::SubFOp, arith::SubIOp>(x, y); }
Scalar lmc::operator*(Scalar x, Scalar y) { return binary<arith::MulFOp, arith::MulIOp>(x, y); }
Scalar lmc::operator/(Scalar x, Scalar y) { return binary<arith::DivFOp, arith::DivSIOp>(x, y); }
Scalar lmc::minimum(Scalar x, Scalar y) { return binary<arith::MinimumFOp, arith::MinSIOp>(x, y); }
Scalar lmc::maximum(Scalar x, Scalar y) { return binary<arith::MaximumFOp, arith::MaxSIOp>(x, y); }

Scalar lmc::operator<(Scalar x, Scalar y) {
  return compare(FloatCompare::OLT, IntegerCompare::slt, x, y);
}
Scalar lmc::operator>(Scalar x, Scalar y) {
  return compare(FloatCompare::OGT, IntegerCompare::sgt, x, y);
}
Scalar lmc::operator>=(Scalar x, Scalar y) {
  return compare(FloatCompare::OGE, IntegerCompare::sge, x, y);
}
Scalar lmc::equal(Scalar x, Scalar y) {
  return compare(FloatCompare::OEQ, IntegerCompare::eq, x, y);
}

Scalar lmc::exp(Scalar x) { return x.make<math::ExpOp>(x); }
Scalar lmc::log(Scalar x) { return x.make<math::LogOp>(x); }
Scalar lmc::sqrt(Scalar x) { return x.make<math::SqrtOp>(x); }
Scalar lmc::abs(Scalar x) { return x.make<math::AbsFOp>(x); }

Scalar lmc::select(Scalar condition, Scalar yes, Scalar no) {
  return yes.make<arith::SelectOp>(condition, yes, no);
}

Scalar Elements::constant(Type type, double number) const {
  return {b, loc, arith::ConstantOp::create(b, loc, b.getFloatAttr(type, number))};
}
Scalar Elements::index(int64_t loop) const {
  return {b, loc, linalg::IndexOp::create(b, loc, loop)};
}
Scalar Elements::element(Value tensor, ValueRange indices) const {
  return {b, loc, tensor::ExtractOp::create(b, loc, tensor, indices)};
}
