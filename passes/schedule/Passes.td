// Phase 6: one sequence of operations per function.

#ifndef LMC_PASSES_SCHEDULE
#define LMC_PASSES_SCHEDULE

include "mlir/Pass/PassBase.td"

def InlineLayersPass : Pass<"kern-inline-layers", "::mlir::ModuleOp"> {
  let summary = "replaces the calls of layers by their bodies";
  let description = [{
    Before this pass a layer is one function that is called many times. The plan is a
    flat sequence of commands, so the pass inlines every call of a private function and
    removes the function. Locations keep the layer: `layers.3/self_attn.q_proj`. Ops whose
    results nothing reads are removed, such as those that sum in a validation what routers do.
  }];
  let dependentDialects = ["::lmc::kern::KernDialect", "::mlir::func::FuncDialect"];
}

#endif
