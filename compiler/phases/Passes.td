// The compiler pass that checks the IR at the end of a phase.

#ifndef LMC_COMPILER_PHASES
#define LMC_COMPILER_PHASES

include "mlir/Pass/PassBase.td"

def VerifyLevelPass : Pass<"verify-level", "::mlir::ModuleOp"> {
  let summary = "reports ops that the IR may not contain after a phase";
  let description = [{
    Every phase of a compile ends with this check. compiler/phases/Levels.cpp has the table of
    the ops that may exist after each phase:

    * model, autodiff: ops of `lm` in functions
    * distribute, memory: ops of `lm` and `dist` in functions
    * fusion: `lm.variable`, `lm.load` and `lm.store`; ops of `dist`; ops of `kern` other than
      `kern.fusion`; views (such as `tensor.extract_slice`)
    * schedule: as after fusion, but without calls
    * buffers: ops of `plan`, kernels and the mesh; every slice and variable must be inside
      its arena

    Regions of `kern.kernel` are not checked.
  }];
  let options = [Option<"phase", "phase", "std::string", "\"\"",
                        "the phase that has just ended: model, autodiff, ...">];
}

#endif
