// Prints scalar arith and math ops as C++ expressions for device code.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

#include <string>

namespace lmc::codegen {

// A C++ expression and the precedence of its outermost operator. An operand whose precedence is too
// low for its place is put in parentheses.
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
};

// Returns the C++ type, such as "float" for f32. The type of `index` is signed and has 64 bits; i1
// is bool.
std::string cudaType(mlir::Type type);

// Returns the literal of an attribute (an int literal for integers narrower than 32 bits). f32 and
// f64 are printed with the fewest digits that give the same value when read.
CudaExpr cudaConstant(mlir::TypedAttr value);

// Returns `op` applied to `operands`. The op must be one that the analysis of Hero.h accepts.
// Integers wrap around on overflow; the maximum or minimum of floats is NaN if an operand is NaN;
// no multiply-add is fused.
CudaExpr cudaApply(mlir::Operation *op, llvm::ArrayRef<CudaExpr> operands);

// Returns x * y + z with one rounding, in f32 or f64.
CudaExpr cudaFma(mlir::Type type, const CudaExpr &x, const CudaExpr &y, const CudaExpr &z);
CudaExpr cudaNegate(const CudaExpr &x);

// Returns the name of the functor of reduce.cuh that computes the same as `combiner`, the op that a
// reduction combines values with.
llvm::StringRef cudaCombiner(mlir::Operation *combiner);

// Returns "sum", "product", "max" or "min".
llvm::StringRef nameOfReduction(mlir::Operation *combiner);

} // namespace lmc::codegen
