#include "compiler/kernels/MathFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace lmc::codegen {

template <typename Op>
static MathFunction row(StringRef name, bool callsLibrary, StringRef host = "") {
  return {TypeID::get<Op>(), name, host, callsLibrary};
}

const MathFunction *mathFunction(Operation *op) {
  static const MathFunction table[] = {
      row<math::ExpOp>("exp", true),
      row<math::Exp2Op>("exp2", true),
      row<math::ExpM1Op>("expm1", true),
      row<math::LogOp>("log", true),
      row<math::Log2Op>("log2", true),
      row<math::Log1pOp>("log1p", true),
      row<math::SqrtOp>("sqrt", false),
      row<math::RsqrtOp>("rsqrt", false, "(1 / std::sqrt({0}))"),
      row<math::AbsFOp>("fabs", false),
      row<math::TanhOp>("tanh", true),
      row<math::SinOp>("sin", true),
      row<math::CosOp>("cos", true),
      row<math::ErfOp>("erf", true),
      row<math::PowFOp>("pow", true),
      row<arith::MaxNumFOp>("fmax", false),
      row<arith::MinNumFOp>("fmin", false),
  };
  const TypeID type = op->getName().getTypeID();
  for (const MathFunction &function : table)
    if (function.op == type)
      return &function;
  return nullptr;
}

} // namespace lmc::codegen
