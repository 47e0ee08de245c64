// Lets C++ code write formulas: operators and functions on Scalars create ops of arith and math.
//
//   Scalar decayed = s[0] * (1.0 - s[1] * s[2]);
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

namespace lmc {

// Returns `value` as a float of `type`. Returns a value that is not a float unchanged.
mlir::Value convertFloat(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                         mlir::Type type);

// A float, a signed integer, or a vector of these. It holds the builder that creates its ops. Both
// operands of an operator have the same type. A C++ number becomes a constant of this type.
class Scalar {
public:
  Scalar(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value)
      : b(&b), loc(loc), value(value) {}

  operator mlir::Value() const { return value; }
  mlir::Type type() const { return value.getType(); }

  // Returns `other`, a value or an op with one result, as a scalar with the same builder.
  Scalar with(mlir::Value other) const { return {*b, loc, other}; }
  template <typename Op, typename... Args> Scalar make(Args &&...args) const {
    return with(Op::create(*b, loc, std::forward<Args>(args)...));
  }
  Scalar constant(double number) const;
  // Returns the value as another float type, or an integer unchanged.
  Scalar to(mlir::Type type) const { return with(convertFloat(*b, loc, value, type)); }
  // Returns an index as an i32, or an i32 or i64 as an index.
  Scalar toI32() const { return make<mlir::arith::IndexCastOp>(b->getI32Type(), value); }
  Scalar toIndex() const { return make<mlir::arith::IndexCastOp>(b->getIndexType(), value); }

  Scalar operator-() const { return make<mlir::arith::NegFOp>(value); }

private:
  mlir::OpBuilder *b;
  mlir::Location loc;
  mlir::Value value;
};

Scalar operator+(Scalar x, Scalar y);
Scalar operator-(Scalar x, Scalar y);
Scalar operator*(Scalar x, Scalar y);
Scalar operator/(Scalar x, Scalar y);
// Return an i1. A comparison with NaN is false.
Scalar operator<(Scalar x, Scalar y);
Scalar operator>(Scalar x, Scalar y);
Scalar operator>=(Scalar x, Scalar y);
Scalar equal(Scalar x, Scalar y);

inline Scalar operator+(Scalar x, double y) { return x + x.constant(y); }
inline Scalar operator+(double x, Scalar y) { return y.constant(x) + y; }
inline Scalar operator-(double x, Scalar y) { return y.constant(x) - y; }
inline Scalar operator*(Scalar x, double y) { return x * x.constant(y); }
inline Scalar operator/(double x, Scalar y) { return y.constant(x) / y; }
inline Scalar operator<(Scalar x, double y) { return x < x.constant(y); }
inline Scalar operator>(Scalar x, double y) { return x > x.constant(y); }
inline Scalar operator>=(Scalar x, double y) { return x >= x.constant(y); }

Scalar exp(Scalar x);
Scalar log(Scalar x);
Scalar sqrt(Scalar x);
Scalar abs(Scalar x);
// A minimum or maximum is NaN if an operand is NaN.
Scalar minimum(Scalar x, Scalar y);
Scalar maximum(Scalar x, Scalar y);
inline Scalar minimum(Scalar x, double y) { return minimum(x, x.constant(y)); }
inline Scalar maximum(Scalar x, double y) { return maximum(x, x.constant(y)); }
// Returns `yes` where the i1 `condition` is true, and `no` elsewhere.
Scalar select(Scalar condition, Scalar yes, Scalar no);

// The tensor elements that a formula reads, each converted to its arithmetic type.
struct Elements {
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::ValueRange values;

  Scalar operator[](size_t i) const { return {b, loc, values[i]}; }
  // constant() returns a constant of `type`, index() the index of a loop of the linalg.generic, and
  // element() an element of `tensor`.
  Scalar constant(mlir::Type type, double number) const;
  Scalar index(int64_t loop) const;
  Scalar element(mlir::Value tensor, mlir::ValueRange indices) const;
};

} // namespace lmc
