// Prints scalar arith and math ops as C++ expressions for device code.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

#include <string>

namespace lmc::codegen {

// A C++ expression and the precedence of its outermost operator, which decides whether it needs
// parentheses as an operand.
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

  // Returns the text, in parentheses unless its operator binds at least as tightly as `allowed`.
  std::string within(Binding allowed) const { return binding <= allowed ? text : "(" + text + ")"; }
};

// Returns the C++ type of an MLIR type, such as "float" for f32. `index` becomes a signed 64-bit
// type, i1 becomes bool.
std::string cudaType(mlir::Type type);

// Returns the literal of an attribute: an int literal for integers narrower than 32 bits; for f32
// and f64 the fewest digits that give the same value when read.
CudaExpr cudaConstant(mlir::TypedAttr value);

// Returns `op` applied to `operands`. The op must be one that the analysis of Hero.h accepts.
// Integers wrap around on overflow; the maximum or minimum of floats is NaN if an operand is NaN;
// no multiply-add is fused.
CudaExpr cudaApply(mlir::Operation *op, llvm::ArrayRef<CudaExpr> operands);

// Returns x * y + z with one rounding, in f32 or f64.
CudaExpr cudaFma(mlir::Type type, const CudaExpr &x, const CudaExpr &y, const CudaExpr &z);
CudaExpr cudaNegate(const CudaExpr &x);

// Returns the name of the functor of reduce.cuh that computes the same as `combiner`, the op by
// which a reduction combines values.
llvm::StringRef cudaCombiner(mlir::Operation *combiner);

// Returns "sum", "product", "max" or "min".
llvm::StringRef nameOfReduction(mlir::Operation *combiner);

} // namespace lmc::codegen
