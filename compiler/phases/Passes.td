// The check between two phases.

#ifndef LMC_COMPILER_PHASES
#define LMC_COMPILER_PHASES

include "mlir/Pass/PassBase.td"

def VerifyLevelPass : Pass<"verify-level", "::mlir::ModuleOp"> {
  let summary = "reports what has no place in the IR after a phase";
  let description = [{
    Every phase of a compile ends with this check (compiler/phases/Levels.cpp has the table):

    * model, autodiff: ops of `lm` in functions
    * distribute, memory: the same, and ops of `dist`
    * fusion: of `lm` only variables, loads and stores are left, of `kern` no fusions, of
      `tensor` only views
    * schedule: the same, without calls
    * buffers: ops of `plan`, kernels and the mesh; every slice and variable lies inside its
      arena

    Regions of `kern.kernel` are not looked at.
  }];
  let options = [Option<"phase", "phase", "std::string", "\"\"",
                        "the phase that the IR is at the end of: model, autodiff, ...">];
}

#endif
