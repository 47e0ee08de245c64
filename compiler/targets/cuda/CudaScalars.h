// Scalar arith and math ops as C++ expressions for device code.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

#include <string>

namespace lmc::codegen {

// An expression and how tightly it binds. An operand that binds less tightly than its operator
// needs is put in parentheses.
struct CudaExpr {
  // In the order of C++ precedence, tightest first.
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

// Returns the C++ type: "float" for f32; `index` is 64 bits signed, i1 is bool.
std::string cudaType(mlir::Type type);

// Returns a literal of the attribute's type (int for narrower integers). f32 and f64 are printed
// with the fewest digits that give the same value.
CudaExpr cudaConstant(mlir::TypedAttr value);

// Returns `op` applied to `operands`. The op must be one that the analysis of Hero.h accepts.
// Integers wrap; the maximum or minimum of floats is NaN if an operand is; no multiply-add is
// fused.
CudaExpr cudaApply(mlir::Operation *op, llvm::ArrayRef<CudaExpr> operands);

// Returns x * y + z with one rounding, in f32 or f64.
CudaExpr cudaFma(mlir::Type type, const CudaExpr &x, const CudaExpr &y, const CudaExpr &z);
CudaExpr cudaNegate(const CudaExpr &x);

// Returns the functor of reduce.cuh that computes the same as `combiner`, the combining op of a
// reduction.
llvm::StringRef cudaCombiner(mlir::Operation *combiner);

} // namespace lmc::codegen
