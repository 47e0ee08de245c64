// Floating-point functions that LLVM would call a library for, as branch-free arithmetic that works
// on scalars and on vectors.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace lmc::codegen {

// Builds arithmetic on f32 values or vectors of them.
struct ScalarMath {
  mlir::OpBuilder &builder;
  mlir::Location loc;
  bool fma; // the target has a fused multiply-add instruction

  // The error is at most 2 units in the last place, also for subnormal results; overflow,
  // infinities and NaN are handled.
  mlir::Value exp(mlir::Value x);
  // The error is at most 2 units in the last place; log(0) = -inf, log(x < 0) = NaN.
  mlir::Value log(mlir::Value x);
  mlir::Value tanh(mlir::Value x);

  // Conversions of bf16, the upper half of an f32: fromBf16 is exact; toBf16 rounds to nearest even
  // and makes NaN quiet.
  mlir::Value fromBf16(mlir::Value x);
  mlir::Value toBf16(mlir::Value x);

  // Returns a * b + c.
  mlir::Value mulAdd(mlir::Value a, mlir::Value b, mlir::Value c);

private:
  mlir::Value constant(mlir::Value like, double value);
  mlir::Value integer(mlir::Value like, int64_t value);
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);
  mlir::Value powerOfTwo(mlir::Value exponent);
};

} // namespace lmc::codegen
