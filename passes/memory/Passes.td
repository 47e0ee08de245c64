// Phase 4: what the forward pass keeps and what the backward pass computes again.

#ifndef LMC_PASSES_MEMORY
#define LMC_PASSES_MEMORY

include "mlir/Pass/PassBase.td"

def AnalyzeRecomputePass : Pass<"lm-analyze-recompute", "::mlir::ModuleOp"> {
  let summary = "finds what each layer may keep and what it may compute again";
  let description = [{
    For every layer function whose halves `lm-autodiff` made: which sets of forward ops
    are worth running again in the backward half, the bytes that are then kept and the
    seconds that it takes. A set is a minimum cut between what the layer reads and what
    its backward half needs. The named ones come first; each keeps the fewest bytes that
    are possible when only these ops may run again:

    * `none`: those that need no kernel of their own in the backward half, because the
      gradient's kernel reads the same operands and writes the value as well
      (`lm.swiglu`, `lm.rms_norm`), and views;
    * `activation`: the MLP's activation and the norms. These are free today, so it is
      `none` by another name;
    * `full`: also the projections that feed the activation (gate and up);
    * `block`: every op that the needed values require.

    `hull1`, `hull2`, ... are the points of the lower convex hull of (bytes, seconds)
    between `none` and `block`, most bytes first. Collectives and ops that are not pure
    never run again. A layer's arguments and results are at hand at no cost: its
    neighbours keep them. A view that is kept holds all of what it is a view of.

    Matrix products take their 2mnk floating-point operations at `flops-per-second`,
    attention half that rate, other ops the bytes that they read and write at
    `bytes-per-second`; of free ops only what they write counts. A driver with a cost
    model of its own calls `analyzeRecompute` (RecomputeOptions.h) with it.

    ```mlir
    module {
      func.func private @layer.forward(...) -> (...) { ... }
      func.func private @layer.backward(...) -> (...) { ... }
      ...
    }
    ```
    becomes the same with an attribute, here for a model of two layers:
    ```mlir
    module attributes {lm.recompute_options = {
      layer = {
        layers = array<i64: 0, 1>,              // calls of @layer.forward, in order
        forward_flops = 38912.0,                // matrix products and attention of one
        options = [
          {name = "none",
           recomputed = array<i64: 0, 9, 12>,   // ops of @layer.forward, by position
           ops = ["norm1", "norm2", "mlp"],     // what the model calls them
           kept_bytes = 4160 : i64,             // from the forward to the backward half
           seconds = 6.8e-10,                   // to run them again
           flops = 0.0},                        // as forward_flops counts them
          ...
        ]
      }
    }} { ... }
    ```
  }];
  let options = [
    Option<"flopsPerSecond", "flops-per-second", "double", "::lmc::kH100FlopsPerSecond",
           "rate of matrix products (default: 700e12, an H100)">,
    Option<"bytesPerSecond", "bytes-per-second", "double", "::lmc::kH100BytesPerSecond",
           "rate of all other ops (default: 3.0e12, an H100)">
  ];
}

def ApplyRecomputePass : Pass<"lm-apply-recompute", "::mlir::ModuleOp"> {
  let summary = "drops values that the backward pass then computes again";
  let description = [{
    Gives each layer its recompute option (see `lm-analyze-recompute`):

    * the module attribute `lm.recompute_choice` has the number of an option for each
      layer, in the order in which the forward pass calls them;
    * without it, every `stride`-th layer gets the option named `mode`, the others
      `none`. `keep-all` leaves everything as it is: all that the backward half reads is
      kept, for tests and comparisons.

    One variant of each half is made for an option that is used, `@layer.forward.OPTION`,
    `@layer.backward.OPTION` and `@layer.backward.accumulate.OPTION`; layers and
    micro-steps share it. Halves that nobody calls any more go. Recomputed ops are clones
    inside the backward half, each right before the first op that reads it, so that what
    they make is held no longer than needed: no pass that merges equal ops may follow. A
    view of a kept value is kept as the view. The module attribute `lm.recompute` says
    what was done: the mode, or "auto" for a choice.

    ```mlir
    %y, %act = call @layer.forward(%x, %w)
    %dx, %dw = call @layer.backward(%dy, %act, %w)
    ```
    becomes, with the op that makes `%act` cloned into the second function,
    ```mlir
    %y = call @layer.forward.full(%x, %w)
    %dx, %dw = call @layer.backward.full(%dy, %w, %x, %w)
    ```
    where the module either has `lm.recompute_choice = array<i64: 2>` or the pass ran as
    `lm-apply-recompute{mode=full}`.
  }];
  let options = [
    Option<"mode", "mode", "std::string", "\"none\"",
           "keep-all, none, activation, full or block">,
    Option<"stride", "stride", "int64_t", "1", "treat every n-th layer">
  ];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
}

#endif
