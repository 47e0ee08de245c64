// Prints scalar arith and math ops as C++ expressions for device code.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

#include <string>

namespace lmc::codegen {

// A C++ expression, and the precedence of its outermost operator.
struct CudaExpr {
  // In the order of C++ precedence, highest first.
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

  // Returns `text`, in parentheses if its outermost operator has lower precedence than `allowed`.
  std::string within(Binding allowed) const { return binding <= allowed ? text : "(" + text + ")"; }
};

// Returns the C++ type of an MLIR type: "float" for f32, "i64" for index, "bool" for i1.
std::string cudaType(mlir::Type type);

// Returns the C++ literal of an attribute. A float has the fewest digits that give the same value.
CudaExpr cudaConstant(mlir::TypedAttr value);

// Returns the expression of `op` applied to `operands`. The analysis of Hero.h must accept `op`.
// Integers wrap around; maximumf of NaN is NaN; no multiply-add is fused.
CudaExpr cudaApply(mlir::Operation *op, llvm::ArrayRef<CudaExpr> operands);

// Returns x * y + z with one rounding, in f32 or f64.
CudaExpr cudaFma(mlir::Type type, const CudaExpr &x, const CudaExpr &y, const CudaExpr &z);
CudaExpr cudaNegate(const CudaExpr &x);

// Returns the name of the functor of reduce.cuh that computes a reduction's `combiner`.
llvm::StringRef cudaCombiner(mlir::Operation *combiner);

// Returns "sum", "product", "max" or "min".
llvm::StringRef nameOfReduction(mlir::Operation *combiner);

} // namespace lmc::codegen
