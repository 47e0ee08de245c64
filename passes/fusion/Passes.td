// The passes of phase 5: they turn model ops into kernels and library calls.

#ifndef LMC_PASSES_FUSION
#define LMC_PASSES_FUSION

include "mlir/Pass/PassBase.td"

// The options of passes that compute how much time a merge saves.
def BytesPerSecond : Option<"bytesPerSecond", "bytes-per-second", "double",
                            "::lmc::cost::kDefaultRates.bytesPerSecond",
                            "memory bandwidth, bytes/s (default: an H100's)">;
def LaunchSeconds : Option<"launchSeconds", "launch-seconds", "double",
                           "::lmc::cost::kDefaultRates.launchSeconds",
                           "from the end of a kernel to the start of the next">;
// The options of passes that merge kernels.
defvar FusionOptions = [
  ListOption<"disable", "disable", "std::string",
             "kinds of fusion to leave out: producer, siblings, layers">,
  BytesPerSecond, LaunchSeconds,
  Option<"printReport", "print-report", "bool", "false",
         "print what was merged and what was refused">
];

def MergeLinearsPass : Pass<"lm-merge-linears", "::mlir::ModuleOp"> {
  let summary = "merges the linear layers of a layer that share their input";
  let description = [{
    The weights become one variable, whose named parts keep the names that checkpoints
    use. The outputs become columns of one matrix (`lm.split`). Ropes that rotate adjacent
    columns with the same tables become one rope. The pass must run before `lm-autodiff`, so
    that gradients merge too.

    Linear layers whose parameters are of different optimizer groups (`group`) are not merged,
    as one step updates all of a parameter. `print-report` prints such pairs.

    ```mlir
    %g = lm.linear %x, %gate : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
    %u = lm.linear %x, %up : (tensor<8x4xf32>, tensor<16x4xf32>) -> tensor<8x16xf32>
    ```
    becomes
    ```mlir
    %y = lm.linear %x, %weight : (tensor<8x4xf32>, tensor<32x4xf32>) -> tensor<8x32xf32>
    %g, %u = lm.split %y : (tensor<8x32xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>)
    ```
  }];
  let options = [
    BytesPerSecond, LaunchSeconds,
    Option<"printReport", "print-report", "bool", "false", "print what was refused">
  ];
  let dependentDialects = ["::lmc::lm::LmDialect", "::mlir::func::FuncDialect"];
  let statistics = [Statistic<"numMerged", "merged", "linear layers merged into others">];
}

def FoldRopePass : Pass<"lm-fold-rope", "::mlir::ModuleOp"> {
  let summary = "rotates attention's gradients for q and k back inside the kernels that compute them";
  let description = [{
    If only the inverse `lm.rope` reads the gradients for q and k, its tables become operands of
    `lm.attention_grad`. This saves reading and writing both matrices once, and one
    rounding, so bf16 results differ in their last bits. The pass is for CUDA targets: on
    a CPU the rotation finds the gradients in the cache.

    ```mlir
    %dq, %dk, %dv = lm.attention_grad %dout, %q, %k, %v, %out, %lse : ...
    %x = lm.join %dq, %dk : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x16xf32>
    %y = lm.rope %x, %cos, %sin head_dim 4 : ... {inverse}
    %z = lm.join %y, %dv : (tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<8x24xf32>
    ```
    becomes
    ```mlir
    %dq, %dk, %dv = lm.attention_grad %dout, %q, %k, %v, %out, %lse rope %cos, %sin : ...
    %z = lm.join %dq, %dk, %dv : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x24xf32>
    ```
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numFolded", "folded", "gradients of attention that rotate back">];
}

def FoldLargestPass : Pass<"lm-fold-largest", "::mlir::ModuleOp"> {
  let summary = "lets attention write the largest values of what it computes";
  let description = [{
    The scale of a cast with `training.fp8 = "tensor"` needs the largest absolute value of a tensor. If this
    is the result of attention, or dq, dk and dv side by side, attention's kernels write the largest value of
    each head of a row, from registers, and `lm.max_abs` reads these few values. The pass is for CUDA
    targets: on a CPU `lm.max_abs` finds the tensor in the cache. It must run after `lm-fold-rope`, which makes
    the rotation a part of the gradient, and after `lm-fold-transpose`, which looks for the `lm.max_abs` of the
    tensor that is cast.

    ```mlir
    %out, %lse = lm.attention %q, %k, %v : ...
    %max = lm.max_abs %out : (tensor<8x16xbf16>) -> tensor<f32>
    ```
    becomes
    ```mlir
    %out, %lse, %largest = lm.attention %q, %k, %v : ...
    %max = lm.max_abs %largest : (tensor<8x4xf32>) -> tensor<f32>
    ```
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numFolded", "folded", "maxima whose values attention writes">];
}

def FoldResidualPass : Pass<"lm-fold-residual", "::mlir::ModuleOp"> {
  let summary = "adds the residual in the matrix product of a linear layer";
  let description = [{
    If only an `lm.add` reads the result of an `lm.linear` or `lm.scaled_matmul`, and the other operand
    of the sum is known before the product, then that operand becomes the product's `residual`. The product reads it
    as the matrix C of cuBLASLt's D = A B + C and rounds once, so bf16 results differ in their last
    bits. What reads the sum, most often a norm, has one input less. The pass is for CUDA targets:
    on a CPU the sum finds the product in the cache.

    ```mlir
    %y = lm.linear %x, %w : (tensor<8x16xbf16>, tensor<4x16xbf16>) -> tensor<8x4xbf16>
    %s = lm.add %r, %y : tensor<8x4xbf16>
    ```
    becomes
    ```mlir
    %s = lm.linear %x, %w residual %r : (tensor<8x16xbf16>, tensor<4x16xbf16>, tensor<8x4xbf16>) -> tensor<8x4xbf16>
    ```
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numFolded", "folded", "sums that a product computes">];
}

def FoldTransposePass : Pass<"lm-fold-transpose", "::mlir::ModuleOp"> {
  let summary = "makes casts to 8-bit floats of a tensor and of its transpose one op";
  let description = [{
    An `lm.quantize` and an `lm.transpose` of its result become `lm.quantize_transposed`, which reads x once,
    if x lies in memory anyway: if the scale comes from x itself. With a scale that is known before, the
    cast can be part of the kernel that computes x, and the pass leaves it alone. Likewise,
    `lm.quantize_rows` and `lm.quantize_columns` of the same x become `lm.quantize_rows_columns`, where the
    first of both casts is: its codes of one byte an element are kept for longer, and x is not. An
    `lm.quantize_tiles` and the `lm.transpose` and `lm.transpose_scales` of its results become
    `lm.quantize_tiles_both`. A cast of tiles also rounds f32 to bf16 if nothing else reads the rounded
    tensor.

    SwiGLU of both halves of a matrix, if only one cast reads it, becomes a part of this
    (`lm.swiglu_quantize_rows`, `lm.swiglu_quantize_columns`, of both `lm.swiglu_quantize`), and so does its
    gradient (`lm.swiglu_grad_quantize`): they are not stored.

    An `lm.rms_norm` of whole rows, of f32 weights, that only casts in blocks read, is not stored, either:
    `lm.norm_quantize_rows` computes the norm and casts it along rows, and `lm.norm_quantize_columns` along
    columns. The latter reads x and the reciprocal 1 / sqrt(mean(x^2) + eps) of each row, which the cast of
    rows writes, or an `lm.reciprocal_rms` where there is none.

    ```mlir
    %max = lm.max_abs %x : (tensor<32x16xbf16>) -> tensor<f32>
    %scale = lm.fp8_scale %max of f8E5M2 : (tensor<f32>) -> tensor<f32>
    %codes = lm.quantize %x, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E5M2>
    %transposed = lm.transpose %codes : (tensor<32x16xf8E5M2>) -> tensor<16x32xf8E5M2>
    ```
    becomes
    ```mlir
    %max = lm.max_abs %x : (tensor<32x16xbf16>) -> tensor<f32>
    %scale = lm.fp8_scale %max of f8E5M2 : (tensor<f32>) -> tensor<f32>
    %codes, %transposed = lm.quantize_transposed %x, %scale : (tensor<32x16xbf16>, tensor<f32>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>)
    ```
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numFolded", "folded", "casts and transposes that another cast writes">];
}

def FoldSwigluPass : Pass<"lm-fold-swiglu", "::mlir::ModuleOp"> {
  let summary = "makes a matrix product and SwiGLU, or its gradient, one op";
  let description = [{
    An `lm.linear` whose halves an `lm.swiglu` multiplies becomes `lm.linear_swiglu`; an `lm.matmul`
    that only an `lm.swiglu_grad` reads becomes `lm.swiglu_linear_grad`, which also computes the
    activation again where the backward pass needs it. Each becomes one command, which a GPU of
    architecture sm_90a computes in one of two ways: by cuBLASLt and an elementwise kernel, or by
    one kernel that keeps the halves in registers until they are stored. `lmc-run` times both and
    takes the faster. The pass is for matrices of bf16 with rows of whole units of 16 bytes, and
    layers without bias.

    ```mlir
    %gu = lm.linear %x, %w : (tensor<8x16xbf16>, tensor<32x16xbf16>) -> tensor<8x32xbf16>
    %g, %u = lm.split %gu : (tensor<8x32xbf16>) -> (tensor<8x16xbf16>, tensor<8x16xbf16>)
    %a = lm.swiglu %g, %u : tensor<8x16xbf16>
    ```
    becomes
    ```mlir
    %gu, %a = lm.linear_swiglu %x, %w : (tensor<8x16xbf16>, tensor<32x16xbf16>) -> (tensor<8x32xbf16>, tensor<8x16xbf16>)
    ```
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let statistics = [Statistic<"numFolded", "folded", "products that SwiGLU, or its gradient, is a part of">];
}

def ConvertLmPass : Pass<"kern-convert-lm", "::mlir::ModuleOp"> {
  let summary = "turns every lm op into library calls and single-op fusions";
  let description = [{
    A matrix product becomes `kern.gemm`, attention becomes `kern.attention`, and the
    embedding's gradient becomes `kern.scatter_add`. Every other op becomes a `kern.fusion`
    whose region computes it on scalars with `linalg.generic`. The head and loss are cut
    into chunks of tokens, so that the logits of only one chunk exist at a time.

    ```mlir
    %y = lm.swiglu %g, %u : tensor<8x16xf32>
    ```
    becomes
    ```mlir
    %y = kern.fusion elementwise (%a = %g : tensor<8x16xf32>, %b = %u : tensor<8x16xf32>)
        -> tensor<8x16xf32> { ... linalg.generic ... }
    ```
  }];
  let dependentDialects = ["::lmc::kern::KernDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def FormFusionsPass : Pass<"kern-form-fusions", "::mlir::ModuleOp"> {
  let summary = "merges fusions where one hero can emit both";
  let description = [{
    Two fusions become one fusion, with those of their results that other ops read, if

    * one reads a result of the other (`producer`), or both read one tensor that is as
      large as their loops (`siblings`);
    * a hero accepts the merged region (`canEmit`);
    * the second fusion reads no result of a third op that depends on the first. Ops between
      the two that depend on the first move behind the merged fusion;
    * the peak of the function's live bytes (LiveBytes.h) does not rise.

    The pair that saves the most predicted time is merged first. The time is that of the
    bytes that are no longer read or written, at `bytes-per-second`, and `launch-seconds` for
    one launch. Values that both regions compute are computed once. A FusionReport
    (FusionReport.h) lists the pairs that were merged or refused; `print-report` prints the
    list, with one line for equal pairs of a function:

    ```
    formed producer in layer: lm.add, lm.rms_norm, saves 16777216 bytes and 7.59241 us, times 1: row_reduction
    refused producer in layer: lm.embedding, lm.rms_norm, would save ..., times 1: a gather and a row_reduction have different loops
    ```

    ```mlir
    %s = kern.fusion elementwise (%a = %x : ..., %b = %h : ...) -> ... { a + b }
    %n = kern.fusion row_reduction (%c = %s : ...) -> ... { norm(c) }
    ```
    becomes
    ```mlir
    %r:2 = kern.fusion row_reduction (%a = %x : ..., %b = %h : ...) -> ... {
      %s = a + b
      kern.yield %s, norm(s)
    }
    ```
  }];
  let options = FusionOptions;
  let dependentDialects = ["::lmc::kern::KernDialect"];
  let statistics = [Statistic<"numFormed", "formed", "fusions merged">];
}

def SplitColumnReductionsPass : Pass<"kern-split-column-reductions", "::mlir::ModuleOp"> {
  let summary = "reduces many rows in two stages: blocks of rows first, then the blocks";
  let description = [{
    Processors can divide a column reduction only by columns. A column reduction over at least
    `min-rows` rows therefore becomes two kernels: a row reduction that computes the sums (or
    products, maxima, ...) of each R rows, `[rows / R, columns]`, and a column reduction
    over those. The order is fixed, so the result is the same every time. The pass is for
    GPUs. It leaves a reduction unchanged if R (rowsPerBlock in FusionBuilder.h) would be
    below 4.

    ```mlir
    %s = kern.fusion column_reduction (%a = %x : tensor<65536x512xbf16>, %b = %c : tensor<512xf32>)
        -> tensor<512xf32> { b + sum over the rows of a }
    ```
    becomes
    ```mlir
    %p = kern.fusion row_reduction (%a = %x : tensor<65536x512xbf16>) -> tensor<1024x512xf32> {
      sums of each 64 rows of a
    }
    %s = kern.fusion column_reduction (%a = %p : tensor<1024x512xf32>, %b = %c : tensor<512xf32>)
        -> tensor<512xf32> { b + sum over the rows of a }
    ```
  }];
  let options = [Option<"minRows", "min-rows", "int64_t", /*default=*/"4096",
                        "rows of a reduction from which on it is split">];
  let dependentDialects = ["::lmc::kern::KernDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
  let statistics = [Statistic<"numSplit", "split", "column reductions split">];
}

def RoundBiasesPass : Pass<"kern-round-biases", "::mlir::ModuleOp"> {
  let summary = "converts the biases of matrix products to the element type of the results";
  let description = [{
    The pass is for CUDA targets: cuBLASLt adds a bias only if it has the element type of the
    result. A bf16 product therefore adds the f32 bias rounded to bf16, to sums in f32 that are
    rounded only once. PyTorch's autocast computes the same. A CPU's product adds the f32 bias
    itself.

    The conversion is a kernel of its own, which reads and writes a few kilobytes. To add the bias
    in a kernel after the product would mean to read and write the whole result once more where no
    kernel reads all of it anyway (attention reads q, k and v).

    ```mlir
    %y = kern.gemm %x, %w bias %b : (tensor<8x4xbf16>, tensor<6x4xbf16>, tensor<6xf32>)
        -> tensor<8x6xbf16> {transpose_b}
    ```
    becomes
    ```mlir
    %c = kern.fusion elementwise (%a = %b : tensor<6xf32>) -> tensor<6xbf16> { bf16 of a }
    %y = kern.gemm %x, %w bias %c : (tensor<8x4xbf16>, tensor<6x4xbf16>, tensor<6xbf16>)
        -> tensor<8x6xbf16> {transpose_b}
    ```
  }];
  let dependentDialects = ["::lmc::kern::KernDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
  let statistics = [Statistic<"numRounded", "rounded", "biases that are converted">];
}

def OutlineKernelsPass : Pass<"kern-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "moves every fusion's region into a kernel that equal fusions share";
  let description = [{
    ```mlir
    %y = kern.fusion elementwise (%a = %x : ...) -> ... { ... }
    ```
    becomes `%y = kern.launch @mlp(%x)`, with one `kern.kernel @mlp elementwise`
    for all fusions whose hero and region are equal.
  }];
  let dependentDialects = ["::lmc::kern::KernDialect"];
  let statistics = [Statistic<"numKernels", "kernels", "distinct kernels">];
}

def MergeLaunchesPass : Pass<"kern-merge-launches", "::mlir::ModuleOp"> {
  let summary = "merges launches that inlining brought together";
  let description = [{
    Layers are functions until `kern-inline-layers`, so `kern-form-fusions` cannot merge
    across layers. This pass merges launches of kernels by the same rules: the residual's
    sum at the end of a layer and the norm at the start of the next layer become one launch
    of a merged kernel. A merged kernel is built once for every pair of kernels and way of
    connecting them, so the pass hardly takes longer for many layers than for two. If a
    merged kernel equals a kernel of the module, that kernel is used. Kernels without a
    launch are erased. A merged launch has the location of the second launch.

    ```mlir
    %y = kern.launch @add(%x, %h) : ...
    %n = kern.launch @rms_norm(%y, %w) : ...
    ```
    becomes `%r:2 = kern.launch @add_rms_norm(%x, %h, %w) : ...`. Merges and refusals are
    reported as by `kern-form-fusions`.
  }];
  let options = FusionOptions;
  let dependentDialects = ["::lmc::kern::KernDialect"];
  let statistics = [Statistic<"numFormed", "formed", "launches merged">,
                    Statistic<"numKernels", "kernels", "merged kernels made">];
}

#endif
