// The passes of phase 4: they decide which values the forward pass keeps and which the backward
// pass recomputes.

#ifndef LMC_PASSES_MEMORY
#define LMC_PASSES_MEMORY

include "mlir/Pass/PassBase.td"

def AnalyzeRecomputePass : Pass<"lm-analyze-recompute", "::mlir::ModuleOp"> {
  let summary = "finds which values each layer may keep and which it may recompute";
  let description = [{
    Finds, for every layer function that `lm-autodiff` divided into halves, the sets of
    forward ops that are worth recomputing in the backward half. Each set is an option,
    with the bytes that the layer then keeps and the seconds that recomputing takes. An
    option is a minimum cut between the values that the layer reads and the values that
    its backward half needs. The named options come first; each keeps the fewest bytes
    that are possible if only the following ops may be recomputed:

    * `none`: views, and ops that need no kernel of their own in the backward half because
      the kernel of their gradient reads the same operands and can also write the value
      (`lm.swiglu`, `lm.rms_norm`), or only a small one, which writes codes in another layout
      (`lm.transpose`, `lm.quantize_columns`);
    * `activation`: the MLP's activation and the norms. All of these are free, so this
      option equals `none`;
    * `full`: also the projections that the activation reads (gate and up);
    * `block`: every op that the needed values require.

    `hull1`, `hull2`, ... are the corners of the lower convex hull of (bytes, seconds)
    between `none` and `block`, most bytes first. `keep1`, ... are the corners between keeping
    every value and `none`: there, an op that is free to recompute costs the bytes that it writes.
    Collectives and ops that are not pure
    are never recomputed. A layer's arguments and results cost nothing, because the
    neighbouring layers keep them. A kept view holds all bytes of the value that it is a
    view of.

    A matrix product takes its 2mnk floating-point operations at `flops-per-second`,
    attention takes its operations at half that rate, and any other op takes the bytes that
    it reads and writes at `bytes-per-second`; for a free op only written bytes count, but
    for those of another layout. A
    driver with its own cost model passes it to `analyzeRecompute` (RecomputeOptions.h).

    ```mlir
    module {
      func.func private @layer.forward(...) -> (...) { ... }
      func.func private @layer.backward(...) -> (...) { ... }
      ...
    }
    ```
    becomes the same module with an attribute, here for a model of two layers:
    ```mlir
    module attributes {lm.recompute_options = {
      layer = {
        layers = array<i64: 0, 1>,              // calls of @layer.forward, in order
        forward_flops = 38912.0,                // FLOPs of products and attention in a call
        options = [
          {name = "none",
           recomputed = array<i64: 0, 9, 12>,   // ops of @layer.forward, by position
           ops = ["norm1", "norm2", "mlp"],     // their names in the model
           kept_bytes = 4160 : i64,             // kept between the forward and backward half
           seconds = 6.8e-10,                   // to recompute them
           flops = 0.0},                        // as forward_flops counts them
          ...
        ]
      }
    }} { ... }
    ```
  }];
  let options = [
    Option<"flopsPerSecond", "flops-per-second", "double", "::lmc::cost::kDefaultRates.flopsPerSecond",
           "rate of matrix products, FLOP/s (default: an H100's)">,
    Option<"bytesPerSecond", "bytes-per-second", "double", "::lmc::cost::kDefaultRates.bytesPerSecond",
           "rate of all other ops, bytes/s (default: an H100's)">
  ];
}

def StoreCodesPass : Pass<"lm-store-codes", "::mlir::ModuleOp"> {
  let summary = "keeps values for the backward pass as 8-bit floats";
  let description = [{
    Rounds what the forward half of a layer keeps to f8E4M3FN, with a scale for each row, where it is
    the result of a matrix product (also of experts), of rope, of attention or of a sum, or the rows
    that experts get. The backward half reads the
    numbers for which the codes stand; what it makes of them for free (the norms, the activation, the
    codes of a product's input), it makes of the rounded numbers. If the forward half casts a value
    for a product with one scale (`lm.quantize`), these codes are kept. Attention reads the rounded q,
    k and v in the forward half too: the sum of the probabilities in its gradient is 1 only if `lse`
    was computed from the same numbers. The layer's arguments and results, `lse` and the logits of
    routers stay as they are.

    ```mlir
    func.func private @layer.forward(%x: tensor<4x8xbf16>, ...) -> (...) {
      %gate = lm.linear %x, %w : ...
      ...
      return %y, %gate : tensor<4x8xbf16>, tensor<4x16xbf16>
    ```
    becomes
    ```mlir
    func.func private @layer.forward(%x: tensor<4x8xbf16>, ...) -> (...) {
      %gate = lm.linear %x, %w : ...
      %codes, %scales = lm.quantize_whole_rows %gate : (tensor<4x16xbf16>) -> (tensor<4x16xf8E4M3FN>, tensor<4xf32>)
      %rounded = lm.dequantize %codes, %scales : (tensor<4x16xf8E4M3FN>, tensor<4xf32>) -> tensor<4x16xbf16>
      ...
      return %y, %rounded : tensor<4x8xbf16>, tensor<4x16xbf16>
    ```
    `lm-apply-recompute` then keeps the codes and moves the `lm.dequantize` to the backward half,
    because the op is free to recompute. Must run after `lm-autodiff`.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numStored", "stored", "values that are kept as 8-bit floats">];
}

def ApplyRecomputePass : Pass<"lm-apply-recompute", "::mlir::ModuleOp"> {
  let summary = "drops values that the backward pass then recomputes";
  let description = [{
    Gives each layer its recompute option (see `lm-analyze-recompute`):

    * the module attribute `lm.recompute_choice` lists the number of an option for each
      layer, in the order in which the forward pass calls the layers;
    * without the attribute, every `stride`-th layer gets the option named `mode` and the
      others get `none`. `keep-all` changes nothing: every value that the backward half
      reads is kept, for tests and comparisons.

    For each option in use, the pass makes one variant of each half: `@layer.forward.OPTION`,
    `@layer.backward.OPTION` and `@layer.backward.accumulate.OPTION`. Layers and
    micro-steps share the variants. Halves that are no longer called are erased. Recomputed
    ops are cloned into the backward half, each right before the first op that reads it, so
    that their results live no longer than needed. A later pass that merges equal ops would
    undo the recompute, so none may follow. If a view of a kept value is needed, the view
    itself is kept. The module attribute `lm.recompute` records the mode, or "auto" for a
    choice.

    ```mlir
    %y, %act = call @layer.forward(%x, %w)
    %dx, %dw = call @layer.backward(%dy, %act, %w)
    ```
    becomes, with the op that computes `%act` cloned into the second function,
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
