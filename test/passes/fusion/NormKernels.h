// The kernels of lm.global_norm.
#pragma once

#include "passes/fusion/Passes.h"
#include "test/passes/fusion/KernelOf.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

namespace lmc::codegen::test {

struct NormKernels {
  std::string sumSquares; // f32 [rows, columns] -> [rows]
  std::string norm;       // f32 [rows] -> []
};

// Of one tensor.
inline NormKernels normKernels(int64_t rows, int64_t columns) {
  FusionScope scope;
  mlir::OpBuilder &b = scope.b();
  auto tensor = mlir::RankedTensorType::get({rows, columns}, b.getF32Type());
  auto scalar = mlir::RankedTensorType::get({}, b.getF32Type());
  mlir::ValueRange inputs = scope.arguments(tensor);
  lm::GlobalNormOp::create(b, scope.loc(), scalar, inputs);
  mlir::func::ReturnOp::create(b, scope.loc());
  mlir::PassManager passes(b.getContext());
  passes.addPass(createConvertLmPass());
  EXPECT_TRUE(mlir::succeeded(passes.run(scope.getModule())));
  std::vector<kern::FusionOp> fusions;
  scope.getModule().walk([&](kern::FusionOp fusion) { fusions.push_back(fusion); });
  EXPECT_EQ(fusions.size(), 2u);
  return {scope.kernelText(fusions.front()), scope.kernelText(fusions.back())};
}

} // namespace lmc::codegen::test
