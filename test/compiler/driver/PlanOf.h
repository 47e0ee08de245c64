// Compiles a module from any phase on. The choices that the driver makes for a job are left out.
#pragma once

#include "compiler/emit/Emit.h"
#include "compiler/phases/Phases.h"

namespace lmc {

// Returns the plan file of `module`, which must have the form that phase `from` expects.
inline mlir::FailureOr<std::string> planOf(mlir::ModuleOp module, Phase from,
                                           const Config &config) {
  const CompileOptions options;
  PhaseRunner phases(config, options);
  for (int phase = int(from); phase <= int(Phase::Buffers); ++phase)
    if (failed(phases.run(Phase(phase), module)))
      return mlir::failure();
  const codegen::Target &target = *codegen::findTarget(config.target.device);
  auto code = target.generate(module, config.target, options.kernelCache);
  if (failed(code))
    return mlir::failure();
  PlanDetails details;
  details.target = llvm::cantFail(target.planTarget(config.target));
  details.code = code->get();
  std::string plan;
  if (failed(emitPlan(module, config, details, plan)))
    return mlir::failure();
  return plan;
}

} // namespace lmc
