// The passes of phase 2: they build the joint forward and backward graph, the accumulation of
// gradients, and the optimizer.

#ifndef LMC_PASSES_AUTODIFF
#define LMC_PASSES_AUTODIFF

include "mlir/Pass/PassBase.td"

def PadVocabularyPass : Pass<"lm-pad-vocabulary", "::mlir::ModuleOp"> {
  let summary = "adds rows to the head's weights, so that tensor cores can take them";
  let description = [{
    Tensor cores are fastest where each row of a matrix begins at a multiple of 128 bytes,
    which is 64 elements of bf16
    (https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication).
    A row of logits has as many elements as there are tokens in the vocabulary. The pass gives
    the head's weights (with tied embeddings, these too) as many rows as the next multiple of
    `multiple`. The new rows are zeros, are no classes of the loss, and stay zeros. They have no
    name outside of the graph, so that a checkpoint has none of them.

    ```mlir
    lm.variable @head parameter : tensor<50257x64xf32> init zeros
    ...
    %w = lm.load @head : tensor<50257x64xf32>
    %loss = lm.linear_cross_entropy %x, %w, %targets chunk 64 : ...
    ```
    becomes
    ```mlir
    lm.variable @head parameter : tensor<50304x64xf32> init zeros
        {parts = [#lm.part<"head", rows = 50257, init = zeros>,
                  #lm.part<"", rows = 47, init = zeros>]}
    ...
    %w = lm.load @head : tensor<50304x64xf32>
    %loss = lm.linear_cross_entropy %x, %w, %targets chunk 64 : ... {classes = 50257}
    ```
    Must run before `lm-autodiff`.
  }];
  let options = [Option<"multiple", "multiple", "int64_t", "64",
                        "the number of rows becomes a multiple of this">];
  let statistics = [Statistic<"numRows", "rows", "rows added">];
  let dependentDialects = ["::lmc::lm::LmDialect"];
}

def PadIntermediatePass : Pass<"lm-pad-intermediate", "::mlir::ModuleOp"> {
  let summary = "makes MLPs wider by zeros, so that tensor cores can take their rows";
  let description = [{
    As `lm-pad-vocabulary`, for the width of the MLPs (`intermediate_size`): the rows that the
    products read and write become the next multiple of `multiple` elements long. The weights
    and biases of gate and up get rows of zeros, the weight of down gets columns of zeros. They
    have no name outside of the graph, so that a checkpoint has none of them.

    The result does not change, and the new elements stay exactly zero in training. Let i be a
    new column of the MLP, x its input and dy the gradient of its output:

    * forward: gate_i = up_i = 0, so that the MLP's h_i = silu(0) * 0 = 0;
    * the gradient of column i of down is dy^T h_i = 0;
    * dh_i = dy . (column i of down) = 0, so that dgate_i = dup_i = 0, and the gradients of
      row i of gate and up (weights and biases) are 0;
    * AdamW with a gradient of 0 keeps both moments at 0. Its update is
      0 / (sqrt(0) + eps) = 0, and weight decay takes a share of 0.

    ```mlir
    lm.variable @gate parameter : tensor<171x64xf32> init zeros
    lm.variable @down parameter : tensor<64x171xf32> init zeros
    ...
    %g = lm.linear %x, %gate : (tensor<6x64xf32>, tensor<171x64xf32>) -> tensor<6x171xf32>
    %h = lm.swiglu %g, %u : tensor<6x171xf32>
    %y = lm.linear %h, %down : (tensor<6x171xf32>, tensor<64x171xf32>) -> tensor<6x64xf32>
    ```
    becomes
    ```mlir
    lm.variable @gate parameter : tensor<176x64xf32> init zeros
        {parts = [#lm.part<"gate", rows = 171, init = zeros>,
                  #lm.part<"", rows = 5, init = zeros>]}
    lm.variable @down parameter : tensor<64x176xf32> init zeros
        {parts = [#lm.part<"down", rows = 64, columns = 171, init = zeros>]}
    ...
    %g = lm.linear %x, %gate : (tensor<6x64xf32>, tensor<176x64xf32>) -> tensor<6x176xf32>
    %h = lm.swiglu %g, %u : tensor<6x176xf32>
    %y = lm.linear %h, %down : (tensor<6x176xf32>, tensor<64x176xf32>) -> tensor<6x64xf32>
    ```
    Must run before `lm-autodiff`. An optimizer with one scale for several elements of a weight
    (`adamw8bit`) would get other blocks in down, so the configuration refuses it.
  }];
  let options = [Option<"multiple", "multiple", "int64_t", "64",
                        "the width of every MLP becomes a multiple of this">];
  let statistics = [Statistic<"numColumns", "columns", "columns added">];
  let dependentDialects = ["::lmc::lm::LmDialect"];
}

def QuantizeLinearsPass : Pass<"lm-quantize-linears", "::mlir::ModuleOp"> {
  let summary = "multiplies 8-bit floats in the linear layers inside decoder layers";
  let description = [{
    Each `lm.linear` of a decoder layer becomes a product of E4M3 codes
    (`lm.scaled_matmul`), whose gradient is cast to E5M2. Tensors have one scale each, from their own
    values (*current scaling*). What several products read is cast once. Weights are cast before the
    call of the layer. Weights that are `unquantized` stay in the compute dtype; if those of some calls
    of a layer do, these calls get a copy of the layer's function.

    ```mlir
    %w = lm.load @w.compute : tensor<32x16xbf16>
    %y = func.call @layer(%x, %w) : ...
    ```
    where the layer has
    ```mlir
    %y = lm.linear %x, %w : (tensor<8x16xbf16>, tensor<32x16xbf16>) -> tensor<8x32xbf16>
    ```
    becomes
    ```mlir
    %w = lm.load @w.compute : tensor<32x16xbf16>
    %max = lm.max_abs %w : (tensor<32x16xbf16>) -> tensor<f32>
    %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
    %codes = lm.quantize %w, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
    %y = func.call @layer(%x, %codes, %scale) : ...
    ```
    and in the layer, where x is cast in the same way,
    ```mlir
    %y = lm.scaled_matmul %x_codes, %codes scales %x_scale, %scale : (...) -> tensor<8x32xbf16>
        {grad_dtype = f8E5M2, transpose_b}
    ```
    With `blocks`, `lm.quantize_rows` and `lm.quantize_tiles` make scales for blocks, and the gradient is
    cast to E4M3, by `lm.quantize_rows` for the gradient of x, and by `lm.quantize_columns`, as x is
    again, for that of the weight. Then `lm.expert_linear` becomes `lm.expert_scaled_linear`, too.

    Must run before `lm-autodiff`. Rows and columns of weights (of each expert's matrix) must be multiples
    of 16, with `blocks` of 128, and the rows of x, too, but for those of experts.
  }];
  let options = [Option<"blocks", "blocks", "bool", "false", "scales are those of blocks">];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numQuantized", "quantized", "linear layers of 8-bit floats">];
}

def ReadMastersPass : Pass<"lm-read-masters", "::mlir::ModuleOp"> {
  let summary = "casts weights to 8-bit floats without copies in the compute dtype";
  let description = [{
    If only casts to 8-bit floats read the copy of a weight, they read the master weight, rounded to the
    dtype of the copy, and there is no copy. Results are the same bits.

    ```mlir
    lm.variable @w.compute compute_copy : tensor<32x16xbf16> init copy_of(source = "w") {parameter = "w"}
    %w = lm.load @w.compute : tensor<32x16xbf16>
    ```
    becomes
    ```mlir
    %master = lm.load @w : tensor<32x16xf32>
    %w = lm.cast %master : (tensor<32x16xf32>) -> tensor<32x16xbf16>
    ```
    Must run after `lm-autodiff`, before `lm-insert-optimizer`, and only if ranks do not divide state:
    else the copies travel between them.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numRead", "read", "weights whose masters are read">];
}

def AutodiffPass : Pass<"lm-autodiff", "::mlir::ModuleOp"> {
  let summary = "builds the micro-step: forward, backward and gradient contributions";
  let description = [{
    Differentiates `@forward` with respect to every `parameter` variable, in reverse
    mode, through `DifferentiableOpInterface`. The cotangent of the loss is
    `run.loss_scale`, so that the losses of micro-steps and ranks add up to the mean over
    all valid tokens.

    A function called from `@forward` (a layer) is differentiated once: `@layer`
    becomes `@layer.forward`, which also returns what the backward pass needs, and
    `@layer.backward`. `@eval` keeps the undifferentiated graph.

    ```mlir
    func.func @forward() -> tensor<f32> {
      %x = lm.load @x : tensor<4x8xf32>
      %w = lm.load @w : tensor<8x8xf32>
      %y = call @layer(%x, %w) ...
    ```
    becomes
    ```mlir
    func.func @micro() {
      ...
      %y, %saved = call @layer.forward(%x, %w)
      ...
      %dx, %dw = call @layer.backward(%dy, %saved, %x, %w)
      lm.accumulate %dw, @w.grad
    ```
    Must run before `lm-accumulate-gradients`.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
}

def AccumulateGradientsPass : Pass<"lm-accumulate-gradients", "::mlir::ModuleOp"> {
  let summary = "turns @micro into one variant per position in the optimizer step";
  let description = [{
    A function of the plan is a fixed sequence of commands. The first micro-step of an
    optimizer step, which stores gradients, and the others, which add to them, are
    therefore different functions: `@micro_first`, `@micro` and `@micro_last`, as many of
    them as `steps` (GAS) needs. If the op that computes a contribution can add to an
    accumulator (`AccumulatingOpInterface`), also inside a layer, the main gradient
    becomes its accumulator; otherwise an `lm.add` follows the op.

    ```mlir
    %dw = lm.matmul %dy, %x {transpose_a}
    lm.accumulate %dw, @w.grad
    ```
    becomes, in `@micro_first`, `lm.store %dw, @w.grad`, and elsewhere
    ```mlir
    %g = lm.load @w.grad
    %dw = lm.matmul %dy, %x acc %g {transpose_a}
    lm.store %dw, @w.grad
    ```
  }];
  let options = [
    Option<"steps", "steps", "int64_t", "1", "gradient accumulation steps (GAS)">
  ];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
}

def InsertOptimizerPass : Pass<"lm-insert-optimizer", "::mlir::ModuleOp"> {
  let summary = "adds @optimizer: gradient norm, clipping and a step for every parameter";
  let description = [{
    Declares the states and scalars of the optimizer `lm.TYPE`, an op with
    `OptimizerOpInterface`, and builds `@optimizer` from `lm.global_norm`, one such op per
    parameter (with `run.weight_decay` only where the parameter has `weight_decay`) and the
    norms of update and parameters.

    With type `adamw8bit`, f32 matrices whose named parts are multiples of 256 elements get
    `lm.adamw8bit`: their `NAME.moment1` and `NAME.moment2` are i8, and `NAME.moment1_scale`
    and `NAME.moment2_scale` hold one f32 scale per 256 elements. All other parameters
    (norms, biases, matrices of odd sizes) get its fallback `lm.adamw` and f32 moments.

    With type `muon`, `hidden` matrices get `lm.muon`, and all other parameters (the
    embedding, the head, norms and biases) `lm.adamw`. `attributes` gives the settings of
    the steps, as in `ns_steps = 5, nesterov = true`.

    Parameters with a `group` read a scalar of their own in place of `run.lr` (and of
    `run.muon_lr`): `run.lr.NAME`. If the group has `own_decay`, they also read
    `run.weight_decay.NAME`. With `f32_moments`, `adamw8bit` leaves them to `lm.adamw`.
  }];
  let options = [
    Option<"type", "type", "std::string", "\"adamw\"",
           "the optimizer, an op of lm: adamw, adamw8bit or muon">,
    Option<"attributes", "attributes", "std::string", "\"\"",
           "attributes of the optimizer's op, NAME = VALUE, ...">
  ];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
}

def FlattenStatePass : Pass<"lm-flatten-state", "::mlir::ModuleOp"> {
  let summary = "lays the state of parameters whose optimizer steps are alike into one matrix";
  let description = [{
    All parameters with the same optimizer op, the same scalars (so of one parameter group
    and the same weight decay) and the same dtypes form a set. A set has one storage `[rows, 4096]` per kind of variable: parameter, main
    gradient, moments, compute copy (and `[rows, 16]` for the scales of 8-bit moments).
    `@optimizer` then has one `lm.adamw` or `lm.adamw8bit`, and one term of the gradient norm,
    per set. The same holds for every op with `OptimizerOpInterface`, but for those that
    step whole matrices (`lm.muon`): their parameters stay apart.
    All other functions use the parameters under their own names. Each parameter begins at a
    multiple of 128 elements of its storage; elements that belong to no parameter start as
    zeros and stay zeros. A moment block holds elements of one parameter only.

    ```mlir
    lm.variable @w parameter : tensor<64x64xf32> init ones
    ```
    becomes
    ```mlir
    lm.variable @flat.0 parameter : tensor<2x4096xf32> init none {anonymous}
    lm.variable @w parameter : tensor<64x64xf32> init ones {storage = @flat.0, storage_offset = 0}
    ```
    Must run after `lm-insert-optimizer`.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
  let statistics = [Statistic<"numGroups", "groups", "storages for each kind of state">];
}

def TransposeCodesPass : Pass<"lm-transpose-codes", "::mlir::ModuleOp"> {
  let summary = "transposes factors of products of 8-bit floats for tensor cores";
  let description = [{
    Tensor cores before sm_100 multiply 8-bit floats only if the rows of both factors run along the
    dimension that is summed over: `a` `[m, k]`, and `b` `[n, k]`. So the gradients of a linear layer
    need transposed factors. The codes that the caller of a layer makes or loads are transposed
    there, where `lm-keep-codes` finds them; others, also those of weights that ranks gather, before the
    product that reads them. With scales of tiles, these are transposed, too (`lm.transpose_scales`). The
    transposes of experts' weights lie one `beside` the other.

    ```mlir
    %dw = lm.scaled_matmul %dy, %x scales %sdy, %sx : (tensor<32x16xf8E5M2>, tensor<32x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<16x64xf32> {transpose_a}
    ```
    becomes
    ```mlir
    %dyt = lm.transpose %dy : (tensor<32x16xf8E5M2>) -> tensor<16x32xf8E5M2>
    %xt = lm.transpose %x : (tensor<32x64xf8E4M3FN>) -> tensor<64x32xf8E4M3FN>
    %dw = lm.scaled_matmul %dyt, %xt scales %sdy, %sx : (tensor<16x32xf8E5M2>, tensor<64x32xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<16x64xf32> {transpose_b}
    ```
    The pass is for CUDA targets: the matrix products of a CPU read factors of either layout. Fails if an
    extent of a product is not a multiple of 16.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numTransposed", "transposed", "transposes that were added">];
}

def KeepCodesPass : Pass<"lm-keep-codes", "::mlir::ModuleOp"> {
  let summary = "casts weights to 8 bits once a step";
  let description = [{
    The first micro-step stores the codes and scales of weights, and transposes of codes; the later ones
    read them: weights only change between steps.

    ```mlir
    func.func @micro() {
      %w = lm.load @w : tensor<32x16xf32>
      %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
      %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
      %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
    ```
    becomes
    ```mlir
    func.func @micro() {
      %codes = lm.load @w.codes : tensor<32x16xf8E4M3FN>
      %scale = lm.load @w.scale : tensor<f32>
    ```
    and `@micro_first` gets `lm.store %codes, @w.codes` and `lm.store %scale, @w.scale`. Without
    gradient accumulation there is only `@micro_first`, and the pass changes nothing. Of weights whose
    codes ranks exchange, only transposes of codes and of scales are kept, if each rank has the whole weight. Must run after
    `lm-accumulate-gradients`.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numKept", "kept", "weights whose codes are kept">];
}

#endif
