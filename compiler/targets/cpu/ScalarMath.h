// Functions of floating-point values that LLVM would call a library for, as
// branch-free arithmetic that works alike on scalars and vectors.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace lmc::codegen {

// Builds arithmetic on f32 values or vectors of them.
struct ScalarMath {
  mlir::OpBuilder &builder;
  mlir::Location loc;
  bool fma; // fused multiply-add is an instruction

  // Within 2 units in the last place of the exact value; subnormal results,
  // overflow, infinities and NaN included.
  mlir::Value exp(mlir::Value x);
  // Within 2 units in the last place; log(0) = -inf, log(x < 0) = NaN.
  mlir::Value log(mlir::Value x);
  mlir::Value tanh(mlir::Value x);

  // bf16 is the upper half of an f32: exact, and round to nearest even (NaN stays
  // NaN, quiet).
  mlir::Value fromBf16(mlir::Value x);
  mlir::Value toBf16(mlir::Value x);

  // a * b + c.
  mlir::Value mulAdd(mlir::Value a, mlir::Value b, mlir::Value c);

private:
  mlir::Value constant(mlir::Value like, double value);
  mlir::Value integer(mlir::Value like, int64_t value);
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);
  mlir::Value powerOfTwo(mlir::Value exponent);
};

} // namespace lmc::codegen
