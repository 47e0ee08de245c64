#include "compiler/driver/Registration.h"

#include "compiler/kernels/Target.h"
#include "compiler/phases/Passes.h"
#include "compiler/targets/Targets.h"
#include "dialects/dist/Dist.h"
#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"
#include "dialects/plan/Plan.h"
#include "passes/autodiff/Passes.h"
#include "passes/buffers/Passes.h"
#include "passes/distribute/Passes.h"
#include "passes/fusion/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/schedule/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/Passes.h"

void lmc::registerTargets() { codegen::registerTargets(); }

void lmc::registerDialects(mlir::DialectRegistry &registry) {
  registerTargets();
  registry.insert<lm::LmDialect, dist::DistDialect, kern::KernDialect, plan_ir::PlanDialect,
                  mlir::arith::ArithDialect, mlir::func::FuncDialect,
                  mlir::linalg::LinalgDialect, mlir::math::MathDialect, mlir::scf::SCFDialect,
                  mlir::tensor::TensorDialect, mlir::vector::VectorDialect,
                  mlir::LLVM::LLVMDialect>();
}

void lmc::registerPasses() {
  registerAutodiffPasses();
  registerDistributePasses();
  registerMemoryPasses();
  registerFusionPasses();
  registerSchedulePasses();
  registerBuffersPasses();
  registerPhasesPasses();
  registerTargets();
  for (const codegen::Target *target : codegen::targets())
    target->registerPasses();
  mlir::registerTransformsPasses();
}
