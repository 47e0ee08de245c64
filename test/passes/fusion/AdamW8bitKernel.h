// The kernel of a step of lm.adamw8bit.
#pragma once

#include "passes/fusion/ConvertOptimizer.h"
#include "test/passes/fusion/KernelOf.h"

#include <gtest/gtest.h>

namespace lmc::codegen::test {

// Over `blocks` blocks of a parameter that decays, with a copy in bf16. Inputs: parameter,
// gradient, codes and scales of moment 1, then of moment 2, and nine scalars.
inline std::string adamW8bitKernel(int64_t blocks) {
  FusionScope scope;
  mlir::OpBuilder &b = scope.b();
  auto f32 = mlir::RankedTensorType::get({blocks * 4, lm::AdamW8bitOp::kBlock / 4}, b.getF32Type());
  auto i8 = f32.clone(b.getI8Type());
  auto perBlock = mlir::RankedTensorType::get({blocks}, b.getF32Type());
  auto scalar = mlir::RankedTensorType::get({}, b.getF32Type());
  llvm::SmallVector<mlir::Type> types{f32, f32, i8, perBlock, i8, perBlock};
  types.append(9, scalar);
  mlir::ValueRange a = scope.arguments(types);
  auto op = lm::AdamW8bitOp::create(b, scope.loc(), f32, i8, perBlock, i8, perBlock, perBlock,
                                    perBlock, f32.clone(b.getBF16Type()), a[0], a[1], a[2], a[3],
                                    a[4], a[5], a[6], a[7], a[8], a[9], a[10],
                                    /*weight_decay=*/a[14], a[11], a[12], a[13]);
  EXPECT_TRUE(mlir::succeeded(op.verify()));
  convertOptimizer(b, op);
  kern::FusionOp fusion;
  op->getBlock()->walk([&](kern::FusionOp found) { fusion = found; });
  return scope.kernelText(fusion);
}

} // namespace lmc::codegen::test
