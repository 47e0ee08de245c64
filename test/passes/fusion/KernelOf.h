// Kernels from what builds fusions, compiled in memory: their text goes through KernelRunner.h.
#pragma once

#include "dialects/lm/Lm.h"
#include "passes/fusion/queue/FusionBuilder.h"
#include "test/compiler/targets/cpu/KernelRunner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace lmc::codegen::test {

// A function to build in.
class FusionScope {
public:
  FusionScope() : context(mlir::MLIRContext::Threading::DISABLED) {
    context.loadDialect<kern::KernDialect, lm::LmDialect, mlir::func::FuncDialect,
                        mlir::linalg::LinalgDialect, mlir::arith::ArithDialect,
                        mlir::math::MathDialect, mlir::tensor::TensorDialect>();
    module = mlir::ModuleOp::create(loc());
    builder.emplace(&context);
    builder->setInsertionPointToStart(module->getBody());
  }

  mlir::ModuleOp getModule() { return *module; }
  mlir::Location loc() { return mlir::UnknownLoc::get(&context); }
  mlir::OpBuilder &b() { return *builder; }

  // Arguments of a function in which later ops are made.
  mlir::ValueRange arguments(llvm::ArrayRef<mlir::Type> types) {
    auto function = mlir::func::FuncOp::create(*builder, loc(), "f",
                                               builder->getFunctionType(types, {}));
    mlir::Block *body = function.addEntryBlock();
    builder->setInsertionPointToStart(body);
    return body->getArguments();
  }

  // The text of a module with `fusion` as its only kernel.
  std::string kernelText(kern::FusionOp fusion) {
    mlir::OwningOpRef<mlir::ModuleOp> alone = mlir::ModuleOp::create(loc());
    mlir::OpBuilder at(&context);
    at.setInsertionPointToStart(alone->getBody());
    auto kernel = kern::KernelOp::create(at, loc(), "kernel", fusion.getHero(),
                                         mlir::ArrayAttr(), mlir::DenseI64ArrayAttr(),
                                         mlir::DenseI64ArrayAttr());
    kernel.getBody().takeBody(fusion.getBody());
    std::string text;
    llvm::raw_string_ostream stream(text);
    alone->print(stream);
    return text;
  }

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<mlir::OpBuilder> builder;
};

} // namespace lmc::codegen::test
