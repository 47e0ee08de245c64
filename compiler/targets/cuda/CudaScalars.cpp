#include "compiler/targets/cuda/CudaScalars.h"
#include "compiler/kernels/MathFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cstdlib>

using namespace mlir;

namespace lmc::codegen {
namespace {

using Binding = CudaExpr::Binding;

// Joins two operands with an operator. A right operand of the same precedence needs parentheses.
CudaExpr infix(const CudaExpr &a, StringRef sign, const CudaExpr &b, Binding binding) {
  return {a.within(binding) + " " + sign.str() + " " + b.within(Binding(binding - 1)), binding};
}

CudaExpr call(const std::string &function, ArrayRef<CudaExpr> operands) {
  std::string text = function + "(";
  for (const CudaExpr &operand : operands)
    text += (&operand == operands.begin() ? "" : ", ") + operand.text;
  return {text + ")", CudaExpr::Atom};
}

std::string unsignedType(Type type) {
  return "u" + std::to_string(type.isIndex() ? 64 : type.getIntOrFloatBitWidth());
}

// Applies an operator to unsigned operands, because signed overflow is undefined in C++.
CudaExpr wrapping(Operation *op, StringRef sign, ArrayRef<CudaExpr> operands, Binding binding) {
  Type type = op->getResult(0).getType();
  if (type.isIndex())
    return infix(operands[0], sign, operands[1], binding);
  CudaExpr sum = infix(call(unsignedType(type), operands[0]), sign,
                       call(unsignedType(type), operands[1]), binding);
  return call(cudaType(type), sum);
}

CudaExpr bitwise(Operation *op, ArrayRef<CudaExpr> operands) {
  bool logical = op->getResult(0).getType().isInteger(1);
  if (isa<arith::AndIOp>(op))
    return logical ? infix(operands[0], "&&", operands[1], CudaExpr::And)
                   : infix(operands[0], "&", operands[1], CudaExpr::BitAnd);
  if (isa<arith::OrIOp>(op))
    return logical ? infix(operands[0], "||", operands[1], CudaExpr::Or)
                   : infix(operands[0], "|", operands[1], CudaExpr::BitOr);
  return logical ? infix(operands[0], "!=", operands[1], CudaExpr::Equal)
                 : infix(operands[0], "^", operands[1], CudaExpr::BitXor);
}

CudaExpr shift(Operation *op, ArrayRef<CudaExpr> operands) {
  Type type = op->getResult(0).getType();
  if (isa<arith::ShRSIOp>(op))
    return infix(operands[0], ">>", operands[1], CudaExpr::Shift);
  CudaExpr bits = call(unsignedType(type), operands[0]);
  return call(cudaType(type),
              infix(bits, isa<arith::ShLIOp>(op) ? "<<" : ">>", operands[1], CudaExpr::Shift));
}

CudaExpr compareIntegers(arith::CmpIOp op, ArrayRef<CudaExpr> operands) {
  using P = arith::CmpIPredicate;
  // The C++ operator of each predicate: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge.
  constexpr StringLiteral signs[] = {"==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">="};
  const P predicate = op.getPredicate();
  CudaExpr a = operands[0], b = operands[1];
  if (predicate >= P::ult) {
    a = call(unsignedType(op.getLhs().getType()), a);
    b = call(unsignedType(op.getLhs().getType()), b);
  }
  return infix(a, signs[size_t(predicate)], b,
               predicate <= P::ne ? CudaExpr::Equal : CudaExpr::Order);
}

// Prints a comparison of floats. In C++ every comparison with NaN is false, except that != is true.
CudaExpr compareFloats(arith::CmpFOp op, ArrayRef<CudaExpr> operands) {
  using P = arith::CmpFPredicate;
  auto compare = [&](StringRef sign) {
    bool equality = sign == "==" || sign == "!=";
    return infix(operands[0], sign, operands[1], equality ? CudaExpr::Equal : CudaExpr::Order);
  };
  auto opposite = [&](StringRef sign) {
    return CudaExpr{"!(" + compare(sign).text + ")", CudaExpr::Prefix};
  };
  const P predicate = op.getPredicate();
  switch (predicate) {
  case P::ONE:
    return infix(compare("<"), "||", compare(">"), CudaExpr::Or);
  case P::UEQ:
    return infix(opposite("<"), "&&", opposite(">"), CudaExpr::And);
  case P::ORD:
    return call("isOrdered", operands);
  case P::UNO:
    return {"!" + call("isOrdered", operands).text, CudaExpr::Prefix};
  case P::AlwaysFalse:
    return {"false"};
  case P::AlwaysTrue:
    return {"true"};
  default:
    break;
  }
  // The C++ operator of each predicate. UGT to ULE have the opposite operator: UGT is !(x <= y).
  constexpr StringLiteral signs[] = {"", "==", ">",  ">=", "<",  "<=", "",
                                     "", "",   "<=", "<",  ">=", ">",  "!="};
  const StringRef sign = signs[size_t(predicate)];
  return predicate >= P::UGT && predicate <= P::ULE ? opposite(sign) : compare(sign);
}

CudaExpr convert(Operation *op, const CudaExpr &x) {
  Type from = op->getOperand(0).getType(), to = op->getResult(0).getType();
  if (isa<arith::ExtFOp>(op)) {
    CudaExpr wide = from.isF32() ? x : call("toFloat", x);
    return to.isF64() ? call("double", wide) : wide;
  }
  if (isa<arith::TruncFOp>(op))
    return call(to.isBF16()                 ? "toBf16"
                : to.isF16()                ? "toF16"
                : isa<Float8E4M3FNType>(to) ? "toE4M3"
                : isa<Float8E5M2Type>(to)   ? "toE5M2"
                                            : "float",
                x);
  if (isa<arith::UIToFPOp, arith::ExtUIOp>(op) && !from.isInteger(1))
    return call(cudaType(to), call(unsignedType(from), x));
  if (isa<arith::ExtSIOp, arith::SIToFPOp>(op) && from.isInteger(1)) // as a signed i1, true is -1
    return {"-" + call(cudaType(to), x).text, CudaExpr::Prefix};
  if (isa<arith::TruncIOp>(op) && to.isInteger(1))
    return infix(infix(x, "&", {"1"}, CudaExpr::BitAnd), "!=", {"0"}, CudaExpr::Equal);
  return call(cudaType(to), x);
}

CudaExpr bitcast(Operation *op, const CudaExpr &x) {
  Type from = op->getOperand(0).getType(), to = op->getResult(0).getType();
  bool wide = from.getIntOrFloatBitWidth() == 64;
  if (isa<FloatType>(from) && isa<IntegerType>(to))
    return call(wide ? "__double_as_longlong" : "__float_as_int", x);
  if (isa<IntegerType>(from) && isa<FloatType>(to))
    return call(wide ? "__longlong_as_double" : "__int_as_float", x);
  return x;
}

// Returns the suffix that C's math functions have for a type: "f" (as in expf) for f32.
std::string suffix(Type type) { return type.isF32() ? "f" : ""; }

// Returns `value` with the fewest decimal digits that give the same number when read.
std::string digitsOf(double value, bool single) {
  char text[40];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (single ? std::strtof(text, nullptr) == float(value) : std::strtod(text, nullptr) == value)
      break;
  }
  return text;
}

std::string floatConstant(FloatAttr attr) {
  bool single = attr.getType().isF32();
  APFloat value = attr.getValue();
  if (attr.getType().isBF16())
    return "bf16{" + std::to_string(value.bitcastToAPInt().getZExtValue()) + "}";
  if (attr.getType().isF16())
    return "f16{" + std::to_string(value.bitcastToAPInt().getZExtValue()) + "}";
  if (!value.isFinite()) {
    uint64_t bits = value.bitcastToAPInt().getZExtValue();
    return single ? "__uint_as_float(0x" + llvm::utohexstr(bits) + "u)"
                  : "__longlong_as_double(0x" + llvm::utohexstr(bits) + "ll)";
  }
  std::string text = digitsOf(attr.getValueAsDouble(), single);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text + (single ? "f" : "");
}

} // namespace

std::string cudaType(Type type) {
  if (isEightBits(type))
    return isa<Float8E4M3FNType>(type) ? "e4m3" : "e5m2";
  if (isa<FloatType>(type))
    return type.isF32() ? "float" : type.isF64() ? "double" : type.isBF16() ? "bf16" : "f16";
  if (type.isInteger(1))
    return "bool";
  if (type.isInteger(16))
    return "short";
  return type.isIndex() ? "i64" : "i" + std::to_string(type.getIntOrFloatBitWidth());
}

CudaExpr cudaConstant(TypedAttr value) {
  auto literal = [](const std::string &text) {
    return CudaExpr{text, text[0] == '-' ? CudaExpr::Prefix : CudaExpr::Atom};
  };
  if (auto number = dyn_cast<FloatAttr>(value))
    return literal(floatConstant(number));
  auto integer = cast<IntegerAttr>(value);
  if (integer.getType().isInteger(1))
    return {integer.getValue().isZero() ? "false" : "true"};
  int64_t number = integer.getValue().getSExtValue();
  bool wide = integer.getType().isIndex() || integer.getType().getIntOrFloatBitWidth() == 64;
  std::string suffix = wide ? "ll" : "";
  if (number == (wide ? INT64_MIN : INT32_MIN)) // C++ has no literal for the smallest integer
    return {"(-" + std::to_string(-(number + 1)) + suffix + " - 1)"};
  return literal(std::to_string(number) + suffix);
}

CudaExpr cudaFma(Type type, const CudaExpr &x, const CudaExpr &y, const CudaExpr &z) {
  return call("fma" + suffix(type), {x, y, z});
}

CudaExpr cudaNegate(const CudaExpr &x) {
  return {"-" + x.within(CudaExpr::Atom), CudaExpr::Prefix};
}

CudaExpr cudaApply(Operation *op, ArrayRef<CudaExpr> x) {
  Type type = op->getResult(0).getType();
  if (const MathFunction *function = mathFunction(op))
    return call(function->name.str() + suffix(type), x);
  return llvm::TypeSwitch<Operation *, CudaExpr>(op)
      .Case([&](arith::AddFOp) { return infix(x[0], "+", x[1], CudaExpr::Plus); })
      .Case([&](arith::SubFOp) { return infix(x[0], "-", x[1], CudaExpr::Plus); })
      .Case([&](arith::MulFOp) { return infix(x[0], "*", x[1], CudaExpr::Times); })
      .Case([&](arith::DivFOp) { return infix(x[0], "/", x[1], CudaExpr::Times); })
      .Case([&](arith::NegFOp) { return cudaNegate(x[0]); })
      .Case([&](arith::MaximumFOp) { return call("maximum", x); })
      .Case([&](arith::MinimumFOp) { return call("minimum", x); })
      .Case([&](arith::MaxSIOp) { return call("max", x); })
      .Case([&](arith::MinSIOp) { return call("min", x); })
      .Case([&](arith::AddIOp) { return wrapping(op, "+", x, CudaExpr::Plus); })
      .Case([&](arith::SubIOp) { return wrapping(op, "-", x, CudaExpr::Plus); })
      .Case([&](arith::MulIOp) { return wrapping(op, "*", x, CudaExpr::Times); })
      .Case([&](arith::DivSIOp) { return infix(x[0], "/", x[1], CudaExpr::Times); })
      .Case<arith::AndIOp, arith::OrIOp, arith::XOrIOp>([&](auto) { return bitwise(op, x); })
      .Case<arith::ShLIOp, arith::ShRUIOp, arith::ShRSIOp>([&](auto) { return shift(op, x); })
      .Case([&](arith::CmpIOp compare) { return compareIntegers(compare, x); })
      .Case([&](arith::CmpFOp compare) { return compareFloats(compare, x); })
      .Case([&](arith::SelectOp) {
        return CudaExpr{x[0].within(CudaExpr::Or) + " ? " + x[1].within(CudaExpr::Or) + " : " +
                            x[2].within(CudaExpr::Or),
                        CudaExpr::Choice};
      })
      .Case([&](arith::BitcastOp) { return bitcast(op, x[0]); })
      .Default([&](Operation *) { return convert(op, x[0]); });
}

StringRef cudaCombiner(Operation *combiner) {
  return llvm::TypeSwitch<Operation *, StringRef>(combiner)
      .Case<arith::MulFOp, arith::MulIOp>([](auto) { return "Multiply"; })
      .Case<arith::MaximumFOp, arith::MaxSIOp>([](auto) { return "Maximum"; })
      .Case<arith::MinimumFOp, arith::MinSIOp>([](auto) { return "Minimum"; })
      .Case([](arith::MaxNumFOp) { return "MaximumNumber"; })
      .Case([](arith::MinNumFOp) { return "MinimumNumber"; })
      .Default([](Operation *) { return "Add"; });
}

StringRef nameOfReduction(Operation *combiner) {
  const StringRef functor = cudaCombiner(combiner);
  return functor == "Add"              ? "sum"
         : functor == "Multiply"       ? "product"
         : functor.starts_with("Maxi") ? "max"
                                       : "min";
}

} // namespace lmc::codegen
