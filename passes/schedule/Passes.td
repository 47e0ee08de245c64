// Phase 6: one sequence of operations per function.

#ifndef LMC_PASSES_SCHEDULE
#define LMC_PASSES_SCHEDULE

include "mlir/Pass/PassBase.td"

def InlineLayersPass : Pass<"kern-inline-layers", "::mlir::ModuleOp"> {
  let summary = "replaces the calls of layers by their bodies";
  let description = [{
    Up to here a layer was one function called many times. The plan is a flat
    sequence of commands, so every call of a private function is inlined and the
    function removed. Locations keep the layer: `layers.3/self_attn.q_proj`.
  }];
  let dependentDialects = ["::lmc::kern::KernDialect", "::mlir::func::FuncDialect"];
}

#endif
