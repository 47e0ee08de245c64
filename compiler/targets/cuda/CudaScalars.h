// Scalar arith and math ops as C++ expressions for device code.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

#include <string>

namespace lmc::codegen {

// An expression, and how tightly it binds: an operand that binds less than its operator allows
// is put in parentheses.
struct CudaExpr {
  // In the order of C++.
  enum Binding {
    Atom,
    Prefix,
    Times,
    Plus,
    Shift,
    Order,
    Equal,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
    Choice
  };

  std::string text;
  Binding binding = Atom;
};

// "float" for f32; index is i64, i1 is bool.
std::string cudaType(mlir::Type type);

// A literal of the attribute's type (int where that is narrower); f32 and f64 in the fewest
// digits that give the same value.
CudaExpr cudaConstant(mlir::TypedAttr value);

// `op` applied to `operands`. The op is one that Hero.h's analysis accepts. Integers wrap; a
// float maximum or minimum hands on NaN; nothing is contracted.
CudaExpr cudaApply(mlir::Operation *op, llvm::ArrayRef<CudaExpr> operands);

// x * y + z in one rounding, of f32 or f64.
CudaExpr cudaFma(mlir::Type type, const CudaExpr &x, const CudaExpr &y, const CudaExpr &z);
CudaExpr cudaNegate(const CudaExpr &x);

// The functor of reduce.cuh that does what `combiner`, an op that a reduction may have, does.
llvm::StringRef cudaCombiner(mlir::Operation *combiner);

} // namespace lmc::codegen
