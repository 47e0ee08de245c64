// Phase 4: what the forward pass keeps and what the backward pass computes again.

#ifndef LMC_PASSES_MEMORY
#define LMC_PASSES_MEMORY

include "mlir/Pass/PassBase.td"

def ApplyRecomputePass : Pass<"lm-apply-recompute", "::mlir::ModuleOp"> {
  let summary = "drops values that the backward pass then computes again";
  let description = [{
    Works on the halves that `lm-autodiff` made of a layer. `mode` says which of the
    layer's ops are not kept:

    * `none`: everything that the backward pass reads is kept;
    * `activation`: the output of the MLP's activation (SwiGLU) is computed again;
    * `full`: so are the gate and up projections that feed it;
    * `block`: the whole layer is computed again from its input.

    Every `stride`-th layer is treated so, the others keep everything. Recomputed ops
    are clones inside the backward half: no pass that merges equal ops may follow.

    ```mlir
    %y, %act = call @layer.forward(%x, %w)
    %dx, %dw = call @layer.backward(%dy, %act, %w)
    ```
    becomes, with the op that makes `%act` cloned into the second function,
    ```mlir
    %y = call @layer.forward.recompute(%x, %w)
    %dx, %dw = call @layer.backward.recompute(%dy, %w, %x, %w)
    ```
  }];
  let options = [
    Option<"mode", "mode", "std::string", "\"none\"", "none, activation, full or block">,
    Option<"stride", "stride", "int64_t", "1", "treat every n-th layer">
  ];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
}

#endif
