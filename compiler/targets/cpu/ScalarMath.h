// Computes functions of f32 without branches and without calls of a math library.
#pragma once

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Value.h"

namespace lmc::codegen {

// Builds arithmetic ops on f32 values or vectors of f32.
struct ScalarMath {
  mlir::ImplicitLocOpBuilder &b;
  bool fma; // true if the target has a fused multiply-add instruction

  // Returns e^x with an error of at most 2 units in the last place. Handles subnormal results,
  // overflow, infinities and NaN.
  mlir::Value exp(mlir::Value x);
  // Returns the natural logarithm with an error of at most 2 units in the last place; log(0) =
  // -inf, log(x < 0) = NaN.
  mlir::Value log(mlir::Value x);
  mlir::Value tanh(mlir::Value x);

  // Convert bf16, which is the upper half of an f32. toBf16 rounds to nearest, ties to even, and
  // turns every NaN into a quiet NaN.
  mlir::Value fromBf16(mlir::Value x);
  mlir::Value toBf16(mlir::Value x);

  // Returns the codes of `format`, f8E4M3FN or f8E5M2, as i8: those of toE4M3() and toE5M2()
  // (ground/plan/FloatConvert.h), which saturate.
  mlir::Value toEightBits(mlir::Value x, mlir::FloatType format);

  // Returns the f32 numbers for which the codes x, i8, stand (fromE4M3() and fromE5M2()).
  mlir::Value fromEightBits(mlir::Value x, mlir::FloatType format);

  // Returns x * y + z. If `fma` is true, rounds only once, after the addition.
  mlir::Value mulAdd(mlir::Value x, mlir::Value y, mlir::Value z);

  // Returns the constant `value`, with the type of `like`.
  mlir::Value constant(mlir::Value like, double value);

private:
  mlir::Value integer(mlir::Value like, int64_t value);
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);
  mlir::Value powerOfTwo(mlir::Value exponent);
};

} // namespace lmc::codegen
