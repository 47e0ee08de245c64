// A model in both forms: functions on tensors, and the commands that were made of them.
#pragma once

#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "dialects/plan/Plan.h"
#include "passes/buffers/Passes.h"
#include "test/ground/config/ShippedConfig.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

namespace lmc {

struct PlacedModel {
  PlacedModel() : context(mlir::MLIRContext::Threading::DISABLED) {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  // From a configuration of models/configs, with `--set` overrides.
  void compile(const std::string &name, std::vector<std::string> overrides) {
    overrides.push_back("distributed.nodes=1");
    overrides.push_back("distributed.devices_per_node=1");
    const Config config = shippedConfig(name, overrides);
    CompileOptions options;
    options.compileTo = Phase::Schedule;
    mlir::FailureOr<CompileResult> result = lmc::compile(config, options, context);
    ASSERT_TRUE(succeeded(result));
    place(std::move(result->module));
  }

  void parse(const char *text) {
    place(mlir::parseSourceString<mlir::ModuleOp>(text, &context));
  }

  void place(mlir::OwningOpRef<mlir::ModuleOp> module) {
    ASSERT_TRUE(module);
    functions = std::move(module);
    plan = functions->clone();
    mlir::PassManager passes(&context);
    passes.addPass(createAssignBuffersPass({/*reuse=*/true, target}));
    passes.addPass(createPackArenasPass());
    passes.addPass(createEmitCommandsPass());
    passes.addPass(createCheckAliasingPass());
    ASSERT_TRUE(succeeded(passes.run(*plan)));
  }

  mlir::func::FuncOp functionOf(plan_ir::FunctionOp planned) {
    for (auto function : functions->getOps<mlir::func::FuncOp>())
      if (function.getSymName() == planned.getSymName())
        return function;
    return {};
  }

  mlir::MLIRContext context;
  std::string target = "cpu"; // of plan-assign-buffers
  mlir::OwningOpRef<mlir::ModuleOp> functions, plan;
};

} // namespace lmc
