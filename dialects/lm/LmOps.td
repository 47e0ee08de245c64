// The lm dialect: a language model's training step on tensors.

#ifndef LMC_DIALECTS_LM
#define LMC_DIALECTS_LM

include "dialects/interfaces/Differentiable.td"
include "dialects/interfaces/Step.td"
include "dialects/lm/Optimizer.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def LmDialect : Dialect {
  let name = "lm";
  let cppNamespace = "::lmc::lm";
  let summary = "Model ops on tensors: the training step";
  let description = [{
    Pure SSA ops with the granularity of a model definition: a rotary embedding,
    an attention, a fused head and loss. Activations are `[tokens, features]`
    with `tokens = micro_batch_size * sequence_length`, sequences one after the
    other. Weights have Hugging Face's layout: a linear layer's is
    `[out_features, in_features]`.

    State (weights, gradients, moments, step scalars, token batches) is named:
    an `lm.variable` is read with `lm.load` and written with `lm.store`; within
    a function all loads see the state from before its first store.

    A transformer layer is a private function called once per layer, so that
    differentiation, recompute and code generation treat it once. The attribute
    `lm.layer` of the call is the index of the layer, from 0 on. The field `backward` of an
    op says that it belongs to the backward pass.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

class Lm_Op<string mnemonic, list<Trait> traits = []> : Op<LmDialect, mnemonic, traits>;
// An op of a training step: `fields` are its own operands and attributes.
class Lm_StepOp<string mnemonic, list<Trait> traits = []>
    : Lm_Op<mnemonic, !listconcat(traits, [StepOpInterface])> {
  dag fields = (ins);
  let arguments = !con(fields, StepFields);
}
// A pure op. It is written as `form`, followed by the types of its operands and results.
class Lm_PureOp<string mnemonic, list<Trait> traits = []>
    : Lm_StepOp<mnemonic, !listconcat([Pure], traits)> {
  string form = "";
  let assemblyFormat = form # " `:` functional-type(operands, results) attr-dict";
}

def Differentiable : DeclareOpInterfaceMethods<DifferentiableOpInterface>;
def DifferentiableLoss
    : DeclareOpInterfaceMethods<DifferentiableOpInterface, ["getResultsFromVjp"]>;
def DifferentiableInPart
    : DeclareOpInterfaceMethods<DifferentiableOpInterface, ["hasGradient"]>;

// Recomputing the op is almost free: the backward pass needs no additional kernel for it, or a small
// one for codes in another layout.
def FreeToRecompute : NativeOpTrait<"FreeToRecompute"> { let cppNamespace = "::lmc::lm"; }
// The op is the non-linearity of an MLP.
def MlpActivation : NativeOpTrait<"MlpActivation"> { let cppNamespace = "::lmc::lm"; }

// kern-convert-lm replaces the op by the kern op of the same name, which has the same operands,
// attributes and results.
def BecomesCall : NativeOpTrait<"BecomesCall"> { let cppNamespace = "::lmc::lm"; }

// The types in which activations and weights are stored.
def Float : AnyTypeOf<[F32, BF16, F64], "f32, bf16 or f64">;
def Tensor0D : 0DTensorOf<[F32, F64]>;
def FloatTensor : RankedTensorOf<[F32, BF16, F64]>;
def Matrix : 2DTensorOf<[F32, BF16, F64]>;
def Vector : 1DTensorOf<[F32, BF16, F64]>;
def Ids : 1DTensorOf<[I32]>;
def Codes : RankedTensorOf<[I8]>;
def EightBitMatrix : 2DTensorOf<[F8E4M3FN, F8E5M2]>;

// A pure op with a verifier. Its result is a matrix unless the op declares other results.
class Lm_CheckedOp<string mnemonic, list<Trait> traits = []> : Lm_PureOp<mnemonic, traits> {
  let results = (outs Matrix:$result);
  let hasVerifier = 1;
}

//===-- State -------------------------------------------------------------------------------===//

class Lm_Enum<string name, string summary, list<I32EnumCase> cases>
    : I32Enum<name, summary, cases> {
  let cppNamespace = "::lmc::lm";
}
class Lm_Attr<string name, string mnemonic_> : AttrDef<LmDialect, name> {
  let mnemonic = mnemonic_;
}

def VariableKind : Lm_Enum<"VariableKind", "what a variable is", [
  I32EnumCase<"Parameter", 0, "parameter">,
  I32EnumCase<"ComputeCopy", 1, "compute_copy">,
  I32EnumCase<"Gradient", 2, "gradient">,
  I32EnumCase<"Moment1", 3, "moment1">,
  I32EnumCase<"Moment2", 4, "moment2">,
  I32EnumCase<"Table", 5, "table">,
  I32EnumCase<"Scalar", 6, "scalar">,
  I32EnumCase<"Input", 7, "input">,
  I32EnumCase<"Moment1Scale", 8, "moment1_scale">,
  I32EnumCase<"Moment2Scale", 9, "moment2_scale">
]>;
def VariableKindAttr : EnumAttr<LmDialect, VariableKind, "kind">;

def InitKind : Lm_Enum<"InitKind", "how initial values are made", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"Zeros", 1, "zeros">,
  I32EnumCase<"Ones", 2, "ones">,
  I32EnumCase<"Normal", 3, "normal">,
  I32EnumCase<"RopeCos", 4, "rope_cos">,
  I32EnumCase<"RopeSin", 5, "rope_sin">,
  I32EnumCase<"Constant", 6, "constant">,
  I32EnumCase<"CopyOf", 7, "copy_of">
]>;

def InitAttr : Lm_Attr<"Init", "init"> {
  let summary = "the initial values of a variable";
  let description = [{
    | text | initial values |
    |---|---|
    | `none` | none: the variable is written before it is read |
    | `zeros`, `ones` | the constants |
    | `constant(scale = 0.5 : f64)` | `scale` everywhere |
    | `normal(stddev = 0.02 : f64)` | normal, mean 0 |
    | `rope_cos(scale = 1.0 : f64, frequencies = [1.0, 0.1])` | `[position, j]`: cos(position * frequencies[j]) * scale, frequencies in radians per position |
    | `rope_sin(...)` | the same with sin |
    | `copy_of(source = "w")` | those of the variable `w`, rounded |
  }];
  let parameters = (ins EnumParameter<InitKind>:$kind,
                        OptionalParameter<"::mlir::FloatAttr">:$stddev,
                        OptionalParameter<"::mlir::FloatAttr">:$scale,
                        OptionalParameter<"::mlir::DenseF64ArrayAttr">:$frequencies,
                        OptionalParameter<"::mlir::StringAttr">:$source);
  let assemblyFormat = "$kind (`(` struct($stddev, $scale, $frequencies, $source)^ `)`)?";
  let genVerifyDecl = 1;
  let builders = [
    // Returns initial values of a kind that needs no stddev, scale, frequencies or source.
    AttrBuilder<(ins "::lmc::lm::InitKind":$kind), [{
      return $_get($_ctxt, kind, ::mlir::FloatAttr(), ::mlir::FloatAttr(),
                   ::mlir::DenseF64ArrayAttr(), ::mlir::StringAttr());
    }]>
  ];
  let extraClassDeclaration = [{
    static InitAttr normal(::mlir::MLIRContext *context, double stddev);
    static InitAttr rope(::mlir::MLIRContext *context, InitKind cosOrSin,
                         ::llvm::ArrayRef<double> frequencies, double scale);
    static InitAttr copyOf(::mlir::StringAttr source);
  }];
}

def PartAttr : Lm_Attr<"Part", "part"> {
  let summary = "rows of a parameter that have a name outside of the graph";
  let description = [{
    With `columns` = c only the first c columns of these rows have the name. The others are
    padding. 0 stands for all columns.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "int64_t":$rows, InitAttr:$init,
                        DefaultValuedParameter<"int64_t", "0">:$columns);
  let assemblyFormat = [{
    `<` $name `,` `rows` `=` $rows `,` (`columns` `=` $columns^ `,`)? `init` `=` $init `>`
  }];
  let genVerifyDecl = 1;
  let builders = [
    // Returns named rows of a parameter. All columns of these rows have the name; none is padding.
    AttrBuilder<(ins "::mlir::StringAttr":$name, "int64_t":$rows, "InitAttr":$init), [{
      return $_get($_ctxt, name, rows, init, 0);
    }]>
  ];
}
def PartsAttr : TypedArrayAttrBase<PartAttr, "parts of a parameter">;

def ShardedAttr : Lm_Attr<"Sharded", "sharded"> {
  let summary = "a tensor whose elements several ranks divide";
  let description = [{
    The tensor `name` of `type` is elements [`offset`, ...) of a vector (see `lm.variable`).
    With `pitch` = p, two rows of it begin p elements apart, and the elements between them are
    padding. 0 stands for adjacent rows. `columns` are those of `lm.variable`.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::RankedTensorType":$type,
                        "int64_t":$offset, InitAttr:$init,
                        DefaultValuedParameter<"int64_t", "0">:$pitch,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$columns);
  let assemblyFormat = [{
    `<` $name `,` $type `,` `offset` `=` $offset `,` (`pitch` `=` $pitch^ `,`)?
    (`columns` `=` $columns^ `,`)? `init` `=` $init `>`
  }];
  let extraClassDeclaration = [{
    // Returns the number of elements from the first to the last of the tensor, with the padding
    // between its rows.
    int64_t getExtent() const;
  }];
}
def ShardedListAttr : TypedArrayAttrBase<ShardedAttr, "tensors that ranks divide">;

def StepValue : Lm_Enum<"StepValue", "what the host computes for each step", [
  I32EnumCase<"LossScale", 0, "loss_scale">,
  I32EnumCase<"LearningRate", 1, "learning_rate">,
  I32EnumCase<"BiasCorrection1", 2, "bias_correction1">,
  I32EnumCase<"BiasCorrection2", 3, "bias_correction2">,
  I32EnumCase<"NormLimit", 4, "norm_limit">,
  I32EnumCase<"LossLimit", 5, "loss_limit">,
  I32EnumCase<"MuonLearningRate", 6, "muon_learning_rate">,
  I32EnumCase<"ShardRank", 7, "shard_rank">,
  I32EnumCase<"GroupLearningRate", 8, "group_learning_rate">,
  I32EnumCase<"GroupMuonLearningRate", 9, "group_muon_learning_rate">
]>;
def StepValueAttr : EnumAttr<LmDialect, StepValue, "step_value">;

def GroupAttr : Lm_Attr<"Group", "group"> {
  let summary = "a parameter group of the optimizer";
  let description = [{
    `name` is that of the table `[[optimizer.group]]` of the configuration. The learning rate
    of the group's parameters is that of the schedule x `optimizer.group.NAME.lr_mult`. With
    `own_decay` all of them decay by `optimizer.group.NAME.weight_decay`. With `f32_moments` an
    optimizer that keeps moments in 8 bits leaves them to its fallback.
  }];
  let parameters = (ins "::mlir::StringAttr":$name,
                        DefaultValuedParameter<"bool", "false">:$own_decay,
                        DefaultValuedParameter<"bool", "false">:$f32_moments);
  let assemblyFormat = "`<` struct(params) `>`";
}

def VariableOp : Lm_Op<"variable", [Symbol]> {
  let summary = "named state that outlives a function";
  let description = [{
    `init` gives the initial values. `weight_decay` is set on parameters to which weight
    decay applies, `hidden` on matrices of layers, and `unquantized` on those whose products
    stay in the compute dtype (`lm-quantize-linears`); `parameter` names the parameter that a
    gradient, moment or copy belongs to. State of a parameter is found by `parameter` and
    kind (`ParameterState`).

    `parts` of a parameter, `[#lm.part<"q_proj.weight", rows = 8, init = zeros>, ...]`, are
    the names of its rows outside of the graph (in checkpoints, dumps and initialisation),
    in order and all of them; its gradient, moments and copy have parts of the same rows,
    each with the name of that state. Scales of its moments have rows in proportion. A part
    with the name "" is padding: nothing outside of the graph has its rows, which start as
    zeros. So do the columns behind the `columns` of a part.

    `columns` of a weight `[in, out]`, `array<i64: 8, 4, 4>`, are the numbers of columns of
    the linear maps that lie side by side in it, such as those to q, k and v.

    A variable with a `storage` is elements [`storage_offset`, ...) of that variable,
    which is `anonymous`: only its members have names outside of the graph. A function
    uses either a storage or its members. Elements that no member covers start as zeros.

    A variable with `shards` = S is this rank's piece of a vector which the S ranks along the
    mesh's axis `shard` divide evenly: a rank with n elements has elements [i n, (i + 1) n),
    where i is its position along the axis. `sharded` lists the tensors in the vector, by
    offset: they have names outside of the graph, the variable has none. Elements of no tensor
    start as zeros.

    With `groups` = N, of a parameter and of a copy of it, the variable holds what this rank has of
    the experts: an N-th of them, which its position along the axis `expert` gives. `parts` are
    then those of all experts, in the order of the positions. A piece with `groups` is one of a
    vector that has N equal parts, each with the experts of one position; the ranks with
    this position divide that part. So with S ranks along `shard`, the rank with position i has
    the piece (i mod N) S / N + i / N.

    The host writes a scalar before each step where it has a `setting` (the value of that
    key of the configuration) or a `step_value` (computed from the number of the step).

    `group` is the optimizer group of a parameter, or the one whose learning rate a scalar is
    (`group_learning_rate`, `group_muon_learning_rate`). `balanced` of the bias of a router is
    the number of choices that an expert gets in a step if all are equally busy
    (`lm.balance_bias`); it is an f64.

    ```mlir
    lm.variable @model.norm.weight parameter : tensor<64xf32> init ones
    lm.variable @run.clip_grad scalar : tensor<f32> init none setting "optimizer.clip_grad"
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, VariableKindAttr:$kind,
                       TypeAttrOf<AnyRankedTensor>:$type, InitAttr:$init, UnitAttr:$weight_decay,
                       UnitAttr:$hidden, OptionalAttr<DenseI64ArrayAttr>:$columns,
                       OptionalAttr<StrAttr>:$parameter, OptionalAttr<PartsAttr>:$parts,
                       OptionalAttr<FlatSymbolRefAttr>:$storage,
                       OptionalAttr<I64Attr>:$storage_offset, UnitAttr:$anonymous,
                       OptionalAttr<StrAttr>:$setting, OptionalAttr<StepValueAttr>:$step_value,
                       OptionalAttr<I64Attr>:$shards, OptionalAttr<ShardedListAttr>:$sharded,
                       OptionalAttr<GroupAttr>:$group, OptionalAttr<F64Attr>:$balanced,
                       DefaultValuedAttr<I64Attr, "1">:$groups, UnitAttr:$unquantized);
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "VariableKind":$kind, "::mlir::Type":$type,
                   "InitAttr":$init, CArg<"bool", "false">:$weight_decay,
                   CArg<"::mlir::StringAttr", "{}">:$parameter)>
  ];
  let assemblyFormat = [{
    $sym_name $kind `:` $type `init` $init (`setting` $setting^)? (`step_value` $step_value^)?
    attr-dict
  }];
  let hasVerifier = 1;
}

def LoadOp : Lm_Op<"load", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                            MemoryEffects<[MemRead]>]> {
  let summary = "reads the value that a variable has when the function starts";
  let arguments = (ins FlatSymbolRefAttr:$variable);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$variable `:` type($result) attr-dict";
}

def StoreOp : Lm_Op<"store", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                              MemoryEffects<[MemWrite]>]> {
  let summary = "sets the value that a variable has when the function ends";
  let arguments = (ins AnyRankedTensor:$value, FlatSymbolRefAttr:$variable);
  let assemblyFormat = "$value `,` $variable `:` type($value) attr-dict";
}

def AccumulateOp : Lm_StepOp<"accumulate", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
                                            MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "adds a micro-step's contribution to a gradient, loss or figure of a router";
  let description = [{
    Differentiation creates this op; in the forward graph it sums what people watch over the
    micro-steps of a step. `lm-accumulate-gradients` replaces it and decides, for each variant of
    the function, whether the first contribution is stored or added.
  }];
  let fields = (ins AnyRankedTensor:$value, FlatSymbolRefAttr:$variable);
  let assemblyFormat = "$value `,` $variable `:` type($value) attr-dict";
}

//===-- Layers ------------------------------------------------------------------------------===//

def EmbeddingOp : Lm_CheckedOp<"embedding", [Differentiable]> {
  let summary = "rows of a table: y[t, :] = table[ids[t], :]";
  let fields = (ins Ids:$ids, Matrix:$table);
  let form = "$ids `,` $table";
}

def EmbeddingGradOp : Lm_CheckedOp<"embedding_grad", [AccumulatingOpInterface]> {
  let summary = "dtable[v, :] = sum of dy[t, :] over ids[t] == v, t ascending";
  let fields = (ins Ids:$ids, Matrix:$dy, Optional<Matrix>:$acc);
  let form = "$ids `,` $dy (`acc` $acc^)?";
}

def MatmulOp : Lm_CheckedOp<"matmul", [Differentiable, AccumulatingOpInterface]> {
  let summary = "op(a) op(b) (+ acc), where op may transpose";
  let description = [{
    `a` is `[m, k]` (`[k, m]` with `transpose_a`), `b` is `[k, n]` (`[n, k]` with
    `transpose_b`); products are accumulated in f32 (f64 for f64) and rounded
    once to the result's dtype.
  }];
  let fields = (ins Matrix:$a, Matrix:$b, Optional<Matrix>:$acc, UnitAttr:$transpose_a,
                    UnitAttr:$transpose_b);
  let form = "$a `,` $b (`acc` $acc^)?";
}

def LinearOp : Lm_CheckedOp<"linear", [AttrSizedOperandSegments, Differentiable]> {
  let summary = "y = x weight^T (+ bias) (+ residual)";
  let description = [{
    `x` `[tokens, in]`, `weight` `[out, in]`, `bias` `[out]`, `residual` and y `[tokens, out]`. With
    `transposed`, `weight` is `[in, out]`, as in the Conv1D of GPT-2, and y = x weight (+ bias).
    All is added in f32 (f64 for f64) and rounded once.
  }];
  let fields = (ins Matrix:$x, Matrix:$weight, Optional<Vector>:$bias, Optional<Matrix>:$residual,
                    UnitAttr:$transposed);
  let form = "$x `,` $weight (`bias` $bias^)? (`residual` $residual^)?";
}

def QuantizeOp : Lm_PureOp<"quantize", [AllShapesMatch<["x", "result"]>, Differentiable,
                                        FreeToRecompute]> {
  let summary = "rounds x / scale to an 8-bit float";
  let description = [{
    Rounds to nearest even. What is larger than the largest finite number of the format becomes that
    number; a NaN stays a NaN. `scale` is a power of two (`lm.fp8_scale`), so the division rounds
    nothing that is not rounded to 0 anyway.

    The op counts as free to recompute: behind a norm or SwiGLU the backward pass computes it in a kernel
    that it needs anyway, and elsewhere it takes one small kernel.

    The gradient of x is that of the result: rounding counts as the identity (a straight-through
    estimator).
  }];
  let fields = (ins RankedTensorOf<[F32, BF16]>:$x, 0DTensorOf<[F32]>:$scale);
  let results = (outs RankedTensorOf<[F8E4M3FN, F8E5M2]>:$result);
  let form = "$x `,` $scale";
}

def Fp8ScaleOp : Lm_CheckedOp<"fp8_scale"> {
  let summary = "the power of two that brings a tensor into the range of an 8-bit float";
  let description = [{
    `max` is the largest absolute value of a tensor. The result is the smallest power of two s, from
    2^-126 on, with max / s <= the largest finite number of `dtype` (448 for f8E4M3FN, 57344 for
    f8E5M2). If max is infinite or NaN, so is the result; then every element of a matrix product with
    this scale is infinite or NaN.
  }];
  let fields = (ins 0DTensorOf<[F32]>:$max, TypeAttr:$dtype);
  let results = (outs 0DTensorOf<[F32]>:$result);
  let form = "$max `of` $dtype";
}

def PieceMaxAbsOp : Lm_CheckedOp<"piece_max_abs"> {
  let summary = "the largest absolute value of each tensor in a rank's piece of a unit";
  let description = [{
    A unit is the tensors of a layer, one after the other; tensor i begins in row starts[i] of it. With
    n rows in `piece`, its row j is row `rank` n + j of the unit. `rank` is a whole number, the rank's
    position along the axis `shard`. The result has an element for each tensor: 0 if the piece has no
    element of it.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$piece, 0DTensorOf<[F32]>:$rank,
                    DenseI64ArrayAttr:$starts);
  let results = (outs 1DTensorOf<[F32]>:$result);
  let form = "$piece `of` $rank";
}

def RanksFp8ScaleOp : Lm_CheckedOp<"ranks_fp8_scale"> {
  let summary = "lm.fp8_scale of the largest of several ranks' values";
  let description = [{
    `max` is those of the first rank, then those of the second, and so on: `[ranks * n]`. The result
    is `[n, 4]`: each scale four times, so that each begins at a multiple of 16 bytes, as cuBLASLt
    needs it.
  }];
  let fields = (ins 1DTensorOf<[F32]>:$max, TypeAttr:$dtype);
  let results = (outs 2DTensorOf<[F32]>:$result);
  let form = "$max `of` $dtype";
}

def PieceQuantizeOp : Lm_CheckedOp<"piece_quantize"> {
  let summary = "lm.quantize of a rank's piece of a unit, with a scale for each tensor";
  let description = [{
    `piece`, `rank` and `starts` are those of `lm.piece_max_abs`.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$piece, 0DTensorOf<[F32]>:$rank,
                    Variadic<0DTensorOf<[F32]>>:$scales, DenseI64ArrayAttr:$starts);
  let results = (outs EightBitMatrix:$codes);
  let form = "$piece `of` $rank `scales` $scales";
}

def RowScalesOp : Lm_CheckedOp<"row_scales"> {
  let summary = "the scale of each row of a matrix";
  let description = [{
    `x` `[rows, columns]`, the result `[rows]`: `lm.fp8_scale` of the largest absolute value of each row, a
    power of two, which bf16 holds exactly.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x, TypeAttr:$dtype);
  let results = (outs 1DTensorOf<[BF16]>:$result);
  let form = "$x `of` $dtype";
}

def TileScalesOp : Lm_CheckedOp<"tile_scales"> {
  let summary = "the scales of lm.quantize_tiles, from those of 128 elements of a row";
  let description = [{
    `x` `[rows, n]`: the scales of 128 elements each (`lm.row_scales`). The result, `[rows / 128, p]`
    with p >= n, has the largest of 128 rows: a scale grows with the value that it is made for. The
    columns from n on are 1.
  }];
  let fields = (ins 2DTensorOf<[BF16]>:$x);
  let results = (outs 2DTensorOf<[F32]>:$result);
  let form = "$x";
}

def TransposeScalesOp : Lm_CheckedOp<"transpose_scales"> {
  let summary = "the scales of the transpose of a matrix that lm.quantize_tiles rounds";
  let description = [{
    `x` `[r, p]`, the result `[c, q]`: element (i, j) is x[j, i]. p >= c and q >= r; the columns of the
    result from r on are 1.
  }];
  let fields = (ins 2DTensorOf<[F32]>:$x);
  let results = (outs 2DTensorOf<[F32]>:$result);
  let form = "$x";
}

def PieceQuantizeTilesOp : Lm_CheckedOp<"piece_quantize_tiles"> {
  let summary = "the codes of lm.quantize_tiles of a rank's piece of a unit";
  let description = [{
    `piece` `[n, 128]`, `rank` and `starts` are those of `lm.piece_max_abs`; tensor i has
    `columns[i]` x 128 columns and the scales `scales[i]` (`lm.quantize_tiles`). If experts are divided
    into `groups` > 1, the rank has piece rank / `groups`, rounded down.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$piece, 0DTensorOf<[F32]>:$rank,
                    Variadic<2DTensorOf<[F32]>>:$scales, DenseI64ArrayAttr:$starts,
                    DenseI64ArrayAttr:$columns, DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs EightBitMatrix:$codes);
  let form = "$piece `of` $rank `scales` $scales";
}

def TransposeOp : Lm_CheckedOp<"transpose", [BecomesCall, FreeToRecompute]> {
  let summary = "the transpose of a matrix of 8-bit floats";
  let description = [{
    `lm-transpose-codes` makes the op for targets whose matrix products need it. It counts as free to
    recompute, so that no mode of `memory.recompute` keeps it. Where memory allows, the search does, and the
    forward pass makes it with the codes (`lm-fold-transpose`).
  }];
  let fields = (ins EightBitMatrix:$x);
  let results = (outs EightBitMatrix:$y);
  let form = "$x";
}

def QuantizeTransposedOp : Lm_CheckedOp<"quantize_transposed", [BecomesCall]> {
  let summary = "lm.quantize, and the transpose of its result";
  let description = [{
    `lm-fold-transpose` makes the op of both, so that x is read once.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x, 0DTensorOf<[F32]>:$scale);
  let results = (outs EightBitMatrix:$codes, EightBitMatrix:$transposed);
  let form = "$x `,` $scale";
}

// A cast in blocks of x and one of the transpose of x. The op reads x, or what x is computed from.
class Lm_CastBothWays<string mnemonic, string casts, string why = "so that x is read once",
                      dag read = (ins 2DTensorOf<[F32, BF16]>:$x), string operands = "$x">
    : Lm_CheckedOp<mnemonic, [BecomesCall]> {
  let summary = casts;
  let description = "`lm-fold-transpose` makes the op of both, " # why # ".";
  let fields = read;
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales, EightBitMatrix:$transposed,
                      2DTensorOf<[F32]>:$transposed_scales);
  let form = operands;
}
def QuantizeRowsColumnsOp
    : Lm_CastBothWays<"quantize_rows_columns", "lm.quantize_rows and lm.quantize_columns">;
def QuantizeTilesBothOp
    : Lm_CastBothWays<"quantize_tiles_both", "lm.quantize_tiles of x and of its transpose",
                      "so that x is read once",
                      (ins 2DTensorOf<[F32, BF16]>:$x, UnitAttr:$rounded)>;
def SwigluQuantizeOp
    : Lm_CastBothWays<"swiglu_quantize",
                      "lm.quantize_rows and lm.quantize_columns of lm.swiglu of the halves of gu",
                      "so that the activation is not stored",
                      (ins 2DTensorOf<[F32, BF16]>:$gu), "$gu">;
// A cast along one dimension of what is computed from gu.
class Lm_CastOfSwiglu<string mnemonic, string casts> : Lm_CheckedOp<mnemonic, [BecomesCall]> {
  let summary = casts # " of lm.swiglu of the halves of gu";
  let description = "`lm-fold-transpose` makes the op of both, so that the activation is not stored.";
  let fields = (ins 2DTensorOf<[F32, BF16]>:$gu);
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales);
  let form = "$gu";
}
def SwigluQuantizeRowsOp : Lm_CastOfSwiglu<"swiglu_quantize_rows", "lm.quantize_rows">;
def SwigluQuantizeColumnsOp : Lm_CastOfSwiglu<"swiglu_quantize_columns", "lm.quantize_columns">;
def SwigluGradQuantizeOp
    : Lm_CastBothWays<"swiglu_grad_quantize",
                      "lm.quantize_rows and lm.quantize_columns of lm.swiglu_grad for both halves of gu",
                      "so that the gradient is not stored",
                      (ins 2DTensorOf<[F32, BF16]>:$dy, 2DTensorOf<[F32, BF16]>:$gu),
                      "$dy `,` $gu">;

def NormQuantizeRowsOp : Lm_CheckedOp<"norm_quantize_rows", [BecomesCall]> {
  let summary = "lm.quantize_rows of lm.rms_norm of x, and lm.reciprocal_rms of x";
  let description = "`lm-fold-transpose` makes the op, so that the norm's result is not stored.";
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x, 1DTensorOf<[F32]>:$weight, F64Attr:$eps);
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales,
                      1DTensorOf<[F32]>:$reciprocals);
  let form = "$x `,` $weight `eps` $eps";
}

def NormQuantizeColumnsOp : Lm_CheckedOp<"norm_quantize_columns", [BecomesCall]> {
  let summary = "lm.quantize_columns of lm.rms_norm of x, whose lm.reciprocal_rms is known";
  let description = "`lm-fold-transpose` makes the op, so that the norm's result is not stored.";
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x, 1DTensorOf<[F32]>:$weight,
                    1DTensorOf<[F32]>:$reciprocals);
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales);
  let form = "$x `,` $weight `,` $reciprocals";
}

def QuantizeRowsOp : Lm_CheckedOp<"quantize_rows", [Differentiable, BecomesCall]> {
  let summary = "rounds rows to 8-bit floats, with a scale for 128 elements";
  let description = [{
    `x` `[rows, columns]`; scales `[columns / 128, rows]`: the power of two of `lm.fp8_scale` for the
    largest absolute value of 128 elements of a row. The gradient of x is that of the codes.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x);
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales);
  let form = "$x";
}

def QuantizeWholeRowsOp : Lm_CheckedOp<"quantize_whole_rows"> {
  let summary = "rounds rows to 8-bit floats, with one scale for each row";
  let description = [{
    `x` `[rows, columns]`; scales `[rows]`: the power of two of `lm.fp8_scale` for the largest absolute
    value of the row. `lm-store-codes` makes the op.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x);
  let results = (outs EightBitMatrix:$codes, 1DTensorOf<[F32]>:$scales);
  let form = "$x";
}

def DequantizeOp : Lm_CheckedOp<"dequantize", [FreeToRecompute]> {
  let summary = "the numbers for which codes stand: codes times scale";
  let description = [{
    `codes` `[rows, columns]`; `scale` is a scalar (`lm.quantize`) or `[rows]`
    (`lm.quantize_whole_rows`). A scale is a power of two, so that only numbers below the normal ones of
    the result's dtype are rounded. The op counts as free to recompute: the kernels that read its
    result read the codes.
  }];
  let fields = (ins EightBitMatrix:$codes, AnyTypeOf<[0DTensorOf<[F32]>, 1DTensorOf<[F32]>]>:$scale);
  let results = (outs 2DTensorOf<[F32, BF16]>:$result);
  let form = "$codes `,` $scale";
}

def QuantizeColumnsOp : Lm_CheckedOp<"quantize_columns", [BecomesCall, FreeToRecompute]> {
  let summary = "lm.quantize_rows of the transpose of x";
  let description = [{
    The gradient of a weight reads codes of x along its columns. The op counts as free to recompute, as
    `lm.transpose` does.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x);
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales);
  let form = "$x";
}

def QuantizeTilesOp : Lm_CheckedOp<"quantize_tiles", [Differentiable, BecomesCall]> {
  let summary = "rounds a matrix to 8-bit floats, with a scale for 128 x 128 elements";
  let description = [{
    `x` `[rows, columns]`; scales `[rows / 128, p]`, where p is columns / 128, for `lm.scaled_matmul`
    rounded up to a multiple of 4: cuBLASLt needs it. The gradient of x is that of the codes. With
    `rounded`, x is rounded to bf16 before it is cast; `lm-fold-transpose` sets it.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x, UnitAttr:$rounded);
  let results = (outs EightBitMatrix:$codes, 2DTensorOf<[F32]>:$scales);
  let form = "$x";
}

def ScaledMatmulOp : Lm_CheckedOp<"scaled_matmul", [AttrSizedOperandSegments, Differentiable,
                                                    AccumulatingOpInterface]> {
  let summary = "op(a) op(b) scale_a scale_b (+ acc) (+ bias) (+ residual), of 8-bit floats";
  let description = [{
    `a` and `b` are codes, that stand for numbers: for themselves times their scale. Their shapes and
    those of `acc` and of the result are those of `lm.matmul`. A scale is a scalar (`lm.quantize`), or
    there is one for 128 elements along k (`lm.quantize_rows`, `lm.quantize_columns`), or, for `b`
    with `tiles`, for 128 x 128 elements (`lm.quantize_tiles`). `bias` is `[n]`, `residual` `[m, n]`. All is
    added in f32 and rounded once.

    `grad_dtype` is the format to which the gradient of the result is cast before it is multiplied.
  }];
  let fields = (ins EightBitMatrix:$a, EightBitMatrix:$b, RankedTensorOf<[F32]>:$scale_a,
                    RankedTensorOf<[F32]>:$scale_b, Optional<Matrix>:$acc, Optional<Vector>:$bias,
                    Optional<Matrix>:$residual, UnitAttr:$transpose_a, UnitAttr:$transpose_b,
                    UnitAttr:$tiles, OptionalAttr<TypeAttr>:$grad_dtype);
  let results = (outs Matrix:$result);
  let form = [{
    $a `,` $b `scales` $scale_a `,` $scale_b (`acc` $acc^)? (`bias` $bias^)? (`residual` $residual^)?
  }];
}

def SplitOp : Lm_CheckedOp<"split", [Differentiable]> {
  let summary = "columns of a matrix, cut into parts: a view";
  let description = [{
    `x` is `[n, c]`; the results `[n, c_i]` are all of its columns, in order. A linear
    layer over concatenated weights computes several outputs as columns of one matrix;
    this op separates them.
  }];
  let fields = (ins Matrix:$x);
  let results = (outs Variadic<Matrix>:$parts);
  let form = "$x";
}

def JoinOp : Lm_CheckedOp<"join", [Differentiable]> {
  let summary = "matrices side by side: the inverse of split";
  let description = [{`parts` `[n, c_i]`, the result `[n, sum of c_i]`.}];
  let fields = (ins Variadic<Matrix>:$parts);
  let form = "$parts";
}

def SumRowsOp : Lm_CheckedOp<"sum_rows"> {
  let summary = "y[c] = sum over t of x[t, c]: the gradient of a bias";
  let fields = (ins Matrix:$x);
  let results = (outs Vector:$result);
  let form = "$x";
}

def AddOp : Lm_PureOp<"add", [Differentiable, SameOperandsAndResultType]> {
  let summary = "element-wise sum";
  let fields = (ins FloatTensor:$lhs, FloatTensor:$rhs);
  let results = (outs FloatTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs `:` type($result) attr-dict";
}

def RmsNormOp : Lm_CheckedOp<"rms_norm", [Differentiable, FreeToRecompute]> {
  let summary = "y = x / sqrt(mean(x^2) + eps) * weight, per row or per head";
  let description = [{
    `x` `[tokens, groups * n]`, `weight` `[n]`: each group of n columns is normalised by itself,
    and all have the same weight. With one group, this is the norm of the row; with n =
    head_dim, that of each head of q or k. Computed in f32 (f64 for f64), whatever the dtype in
    memory. Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
  }];
  let fields = (ins Matrix:$x, Vector:$weight, F64Attr:$eps);
  let form = "$x `,` $weight `eps` $eps";
}

def ReciprocalRmsOp : Lm_CheckedOp<"reciprocal_rms"> {
  let summary = "1 / sqrt(mean(x^2) + eps) of each row";
  let description = [{
    `x` `[rows, n]`, result `[rows]`: what `lm.rms_norm` multiplies a row by, beside the weight.
    `lm-fold-transpose` makes the op.
  }];
  let fields = (ins 2DTensorOf<[F32, BF16]>:$x, F64Attr:$eps);
  let results = (outs 1DTensorOf<[F32]>:$reciprocals);
  let form = "$x `eps` $eps";
}

def RmsNormGradOp : Lm_CheckedOp<"rms_norm_grad"> {
  let summary = "gradients of rms_norm for x and weight";
  let description = [{
    With r = 1 / sqrt(mean(x^2) + eps) per group of n features:
    dx = r * (dy w - x r^2 / n * sum(dy w x)), dw = sum over rows and groups of dy x r.
  }];
  let fields = (ins Matrix:$dy, Matrix:$x, Vector:$weight, F64Attr:$eps);
  let results = (outs Matrix:$dx, Vector:$dweight);
  let form = "$dy `,` $x `,` $weight `eps` $eps";
}

def LayerNormOp : Lm_CheckedOp<"layer_norm", [Differentiable, FreeToRecompute]> {
  let summary = "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, per row";
  let description = [{
    `x` `[tokens, n]`, `weight` and `bias` `[n]`. The variance is the mean of the squared
    differences from the mean. Computed in f32 (f64 for f64), whatever the dtype in memory.
    Ba et al. 2016, https://arxiv.org/abs/1607.06450.
  }];
  let fields = (ins Matrix:$x, Vector:$weight, Vector:$bias, F64Attr:$eps);
  let form = "$x `,` $weight `,` $bias `eps` $eps";
}

def LayerNormGradOp : Lm_CheckedOp<"layer_norm_grad"> {
  let summary = "gradients of layer_norm for x, weight and bias";
  let description = [{
    With r = 1 / sqrt(var(x) + eps), h = (x - mean(x)) r and g = dy weight, per row:
    dx = r (g - mean(g) - h mean(g h)); over all rows: dweight = sum of dy h, dbias = sum of dy.
  }];
  let fields = (ins Matrix:$dy, Matrix:$x, Vector:$weight, F64Attr:$eps);
  let results = (outs Matrix:$dx, Vector:$dweight, Vector:$dbias);
  let form = "$dy `,` $x `,` $weight `eps` $eps";
}

def RopeOp : Lm_CheckedOp<"rope", [Differentiable]> {
  let summary = "rotary position embedding on every head";
  let description = [{
    `x` is `[tokens, heads * head_dim]`, `cos` and `sin` `[seq, head_dim / 2]`;
    token t has position t mod seq. The halves of a head rotate against each
    other (Hugging Face's rotate_half): with i < head_dim / 2,
    y[i] = x[i] cos - x[i + d/2] sin, y[i + d/2] = x[i + d/2] cos + x[i] sin.
    `inverse` rotates back, which is the gradient. Su et al. 2021,
    https://arxiv.org/abs/2104.09864.
  }];
  let fields = (ins Matrix:$x, Matrix:$cos, Matrix:$sin, I64Attr:$head_dim, UnitAttr:$inverse);
  let form = "$x `,` $cos `,` $sin `head_dim` $head_dim";
}

def AttentionOp : Lm_CheckedOp<"attention", [Differentiable, BecomesCall]> {
  let summary = "causal grouped-query attention";
  let description = [{
    `q` `[tokens, heads * head_dim]`, `k` and `v` `[tokens, kv_heads * head_dim]`;
    each sequence of `seq` tokens attends to itself. Query i sees key j if j <= i, with
    `window > 0` only if also i - j < window, and with `starts` `[tokens]` only if also
    j >= starts[i], the position within its sequence at which the document of token i
    begins. `lse` `[tokens, heads]` is the log of each softmax's denominator, which is
    kept for the backward pass. `largest` `[tokens, heads]` has the largest absolute value of each
    head of a row of the result; `lm-fold-largest` adds it.
    Dao 2023, https://arxiv.org/abs/2307.08691.
  }];
  let fields = (ins Matrix:$q, Matrix:$k, Matrix:$v, Optional<Ids>:$starts, I64Attr:$head_dim,
                    I64Attr:$seq, F64Attr:$scale, DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Matrix:$result, 2DTensorOf<[F32, F64]>:$lse,
                      Optional<2DTensorOf<[F32, F64]>>:$largest);
  let form = "$q `,` $k `,` $v (`starts` $starts^)?";
}

def AttentionGradOp : Lm_CheckedOp<"attention_grad", [AttrSizedOperandSegments, BecomesCall]> {
  let summary = "gradients of attention for q, k and v";
  let description = [{
    The operands are those of `lm.attention`, its results and the gradient of its
    output. With `rope`, q and k are results of `lm.rope` with these tables (f32), and
    dq and dk are the gradients of the operands of `lm.rope`: they are rotated back
    before they are rounded. `largest` `[tokens, heads + 2 kv_heads]` has the largest absolute value
    of each head of a row of dq, then of dk, then of dv; `lm-fold-largest` adds it.
  }];
  let fields = (ins Matrix:$dout, Matrix:$q, Matrix:$k, Matrix:$v, Matrix:$out,
                    2DTensorOf<[F32, F64]>:$lse, Optional<Ids>:$starts, Optional<Matrix>:$cos,
                    Optional<Matrix>:$sin, I64Attr:$head_dim, I64Attr:$seq, F64Attr:$scale,
                    DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Matrix:$dq, Matrix:$dk, Matrix:$dv,
                      Optional<2DTensorOf<[F32, F64]>>:$largest);
  let form = [{
    $dout `,` $q `,` $k `,` $v `,` $out `,` $lse (`starts` $starts^)? (`rope` $cos^ `,` $sin)?
  }];
}

def SwigluOp : Lm_PureOp<"swiglu", [Differentiable, SameOperandsAndResultType, FreeToRecompute,
                                    MlpActivation]> {
  let summary = "silu(gate) * up";
  let description = [{silu(g) = g / (1 + exp(-g)). Shazeer 2020, https://arxiv.org/abs/2002.05202.}];
  let fields = (ins FloatTensor:$gate, FloatTensor:$up);
  let results = (outs FloatTensor:$result);
  let assemblyFormat = "$gate `,` $up `:` type($result) attr-dict";
}

def SwigluGradOp : Lm_PureOp<"swiglu_grad", [SameOperandsAndResultType]> {
  let summary = "gradients of swiglu for gate and up";
  let fields = (ins FloatTensor:$dy, FloatTensor:$gate, FloatTensor:$up);
  let results = (outs FloatTensor:$dgate, FloatTensor:$dup);
  let assemblyFormat = "$dy `,` $gate `,` $up `:` type($dgate) attr-dict";
}

def LinearSwigluOp : Lm_CheckedOp<"linear_swiglu", [BecomesCall]> {
  let summary = "a linear layer and the SwiGLU of its halves";
  let description = [{
    gu = x weight^T, a = silu(g) u with the halves g and u of each row of gu: `x` `[T, in]`, `weight`
    `[2 w, in]`, gu `[T, 2 w]`, a `[T, w]`. Only with `both` is gu needed; else nothing reads it, and
    it may have any values. `lm-fold-swiglu` makes the op of an `lm.linear` and an `lm.swiglu`.
  }];
  let fields = (ins Matrix:$x, Matrix:$weight, UnitAttr:$both);
  let results = (outs Matrix:$gu, Matrix:$a);
  let form = "$x `,` $weight";
}

def SwigluLinearGradOp : Lm_CheckedOp<"swiglu_linear_grad", [BecomesCall]> {
  let summary = "gradient of a linear layer of a SwiGLU for the halves";
  let description = [{
    Of y = a weight^T with a = silu(g) u and the halves g and u of each row of gu: with d = dy weight
    and s = 1 / (1 + exp(-g)), dg = d u s (1 + g (1 - s)) and du = d g s are the halves of dgu. `dy`
    `[T, out]`, `weight` `[out, w]`, `gu` and dgu `[T, 2 w]`, a `[T, w]`. Only with `both` is a
    needed; else nothing reads it, and it may have any values. `lm-fold-swiglu` makes the op of an
    `lm.matmul` and an `lm.swiglu_grad`.
  }];
  let fields = (ins Matrix:$dy, Matrix:$weight, Matrix:$gu, UnitAttr:$both);
  let results = (outs Matrix:$dgu, Matrix:$a);
  let form = "$dy `,` $weight `,` $gu";
}

def GeluOp : Lm_PureOp<"gelu", [Differentiable, SameOperandsAndResultType, FreeToRecompute,
                                MlpActivation]> {
  let summary = "GELU by its approximation with tanh";
  let description = [{
    y = x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), computed as
    x / (1 + exp(-2 u)), which is the same. Hendrycks and Gimpel 2016,
    https://arxiv.org/abs/1606.08415. Hugging Face's name is `gelu_new`.
  }];
  let fields = (ins FloatTensor:$x);
  let results = (outs FloatTensor:$result);
  let assemblyFormat = "$x `:` type($result) attr-dict";
}

def GeluGradOp : Lm_PureOp<"gelu_grad", [SameOperandsAndResultType]> {
  let summary = "gradient of gelu";
  let description = [{
    With s = 1 / (1 + exp(-2 u)): dx = dy s (1 + x (1 - s) 2 u'), where
    u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
  }];
  let fields = (ins FloatTensor:$dy, FloatTensor:$x);
  let results = (outs FloatTensor:$dx);
  let assemblyFormat = "$dy `,` $x `:` type($dx) attr-dict";
}


//===-- Mixture of experts ------------------------------------------------------------------===//

// The choices of experts of a micro-step: T tokens choose k of E experts each. Choice c = t k + j
// is the j-th of token t. There are T k choices, whatever the router decides. Only the row at which
// each expert begins depends on the router. These row numbers stay in a tensor on the device.

def RouteOp : Lm_CheckedOp<"route", [DifferentiableInPart, BecomesCall]> {
  let summary = "the k experts of each token, and their weights";
  let description = [{
    `logits` `[T, E]`. With p = softmax of a row, in f32 (f64 for f64), or, with `sigmoid`, the
    sigmoid of each element: the experts of a token are those with the k largest p (with a `bias`
    `[E]`, p + bias), the largest first, of equal ones the lower number first; their weights are p,
    with `normalize` divided by the sum of the k (for `sigmoid` + 1e-20), times `scale`. `experts`
    and `weights` are `[T, k]`. `counts` `[E]` says how many choices each expert got, `mass` `[E]`
    is the sum of p, with `sigmoid` of p divided by the sum of its row, over all tokens. Shazeer et
    al. 2017, https://arxiv.org/abs/1701.06538; Fedus et al. 2021, https://arxiv.org/abs/2101.03961;
    `sigmoid` and `bias`: DeepSeek-AI 2024, https://arxiv.org/abs/2412.19437 (2.1.2).

    The bias takes no part in the weights, so it has no gradient. What is passed back to it is
    `counts`: `lm.balance_bias`, which steps it, reads how busy the experts were.
  }];
  let fields = (ins Matrix:$logits, Optional<1DTensorOf<[F32, F64]>>:$bias, UnitAttr:$normalize,
                    UnitAttr:$sigmoid, DefaultValuedAttr<F64Attr, "1.0">:$scale);
  let results = (outs 2DTensorOf<[F32, F64]>:$weights, 2DTensorOf<[I32]>:$experts,
                      1DTensorOf<[F32, F64]>:$counts, 1DTensorOf<[F32, F64]>:$mass);
  let form = "$logits (`bias` $bias^)?";
}

def RouteGradOp : Lm_CheckedOp<"route_grad", [BecomesCall]> {
  let summary = "gradient of route for the logits";
  let description = [{
    `dweights` `[T, k]` and `dmass` `[E]` (none: zeros) are the gradients of the results. With dp =
    dmass + those of the chosen p (dw scale; with `normalize`, (dw scale - sum of dw w) / sum of the
    chosen p): dlogits = p (dp - sum of p dp), with `sigmoid` dp p (1 - p). With `sigmoid` there is
    no `dmass`.
  }];
  let fields = (ins Matrix:$logits, 2DTensorOf<[I32]>:$experts,
                    2DTensorOf<[F32, F64]>:$dweights, Optional<1DTensorOf<[F32, F64]>>:$dmass,
                    UnitAttr:$normalize, UnitAttr:$sigmoid,
                    DefaultValuedAttr<F64Attr, "1.0">:$scale);
  let form = "$logits `,` $experts `,` $dweights (`mass` $dmass^)?";
}

def SortRowsOp : Lm_CheckedOp<"sort_rows", [BecomesCall]> {
  let summary = "the order of choices by expert, stable";
  let description = [{
    `experts` `[T, k]`, each in [0, E). Row r of the sorted rows is of choice `rows[r]`, choice c
    has row `places[c]`, both `[T k]`; expert e has the rows `offsets[e]` to `offsets[e + 1]`
    (`[E + 1]`), perhaps none.

    With `groups` = N, `experts` are in [0, N E), and only the choices of E experts are sorted: of
    those from E (rank mod N) on, which are then numbered from 0 on. `rows` has R rows, from the
    sorted row `first` on: the others are left out, and `offsets` are numbered from `first` on.
    A choice that has no row has the place -1; a row that is of no choice is of choice -1.
  }];
  let fields = (ins 2DTensorOf<[I32]>:$experts, Optional<Tensor0D>:$rank,
                    DefaultValuedAttr<I64Attr, "1">:$groups,
                    DefaultValuedAttr<I64Attr, "0">:$first);
  let results = (outs Ids:$offsets, Ids:$rows, Ids:$places);
  let form = "$experts (`of` $rank^)?";
}

def TakeRowsOp : Lm_CheckedOp<"take_rows", [Differentiable]> {
  let summary = "y[r, :] = x[token of row r, :]";
  let description = [{
    `x` `[T, n]`, `rows` `[R]` and `places` `[T k]` of `lm.sort_rows`, y `[R, n]`. A row of no choice
    may have any value.
  }];
  let fields = (ins Matrix:$x, Ids:$rows, Ids:$places);
  let form = "$x `,` $rows `,` $places";
}

def TakeRowsGradOp : Lm_CheckedOp<"take_rows_grad", [BecomesCall]> {
  let summary = "dx[t, :] = sum over j of dy[places[t k + j], :]";
  let description = [{A choice without a row adds nothing.}];
  let fields = (ins Matrix:$dy, Ids:$places);
  let form = "$dy `,` $places";
}

def CombineRowsOp : Lm_CheckedOp<"combine_rows", [Differentiable]> {
  let summary = "out[t, :] = sum over j of weights[t, j] y[places[t k + j], :]";
  let description = [{
    `y` `[R, n]`, `weights` `[T, k]`, `rows` and `places` of `lm.sort_rows`, out `[T, n]`. A choice
    without a row adds nothing.
  }];
  let fields = (ins Matrix:$y, 2DTensorOf<[F32, F64]>:$weights, Ids:$rows, Ids:$places);
  let form = "$y `,` $weights `,` $rows `,` $places";
}

def CombineRowsGradOp : Lm_CheckedOp<"combine_rows_grad", [BecomesCall]> {
  let summary = "gradients of combine_rows for y and weights";
  let description = [{
    With the choice c = rows[r] of row r, and its token t: dy[r, :] = weights[c] dout[t, :],
    dweights[c] = sum of dout[t, :] y[r, :], 0 for a choice without a row. A row of no choice may
    have any value in y and in dy.
  }];
  let fields = (ins Matrix:$dout, Matrix:$y, 2DTensorOf<[F32, F64]>:$weights, Ids:$rows,
                    Ids:$places);
  let results = (outs Matrix:$dy, 2DTensorOf<[F32, F64]>:$dweights);
  let form = "$dout `,` $y `,` $weights `,` $rows `,` $places";
}

def ExpertLinearOp : Lm_CheckedOp<"expert_linear", [Differentiable, BecomesCall]> {
  let summary = "y[r, :] = x[r, :] w_e^T for the rows r of each expert e";
  let description = [{
    `x` `[R, in]`, whose rows are sorted by expert; `weight` `[E out, in]`, the matrices of the
    experts one below the other; `offsets` `[E + 1]` of `lm.sort_rows`; y `[R, out]`. With
    `transposed`, y[r, :] = x[r, :] w_e, with w_e `[in, out]`. Rows of no expert may have any
    value in x and in y: no other op reads them from y, but for those that work row by row.
  }];
  let fields = (ins Matrix:$x, Matrix:$weight, Ids:$offsets, UnitAttr:$transposed);
  let form = "$x `,` $weight `,` $offsets";
}

def ExpertScaledLinearOp : Lm_CheckedOp<"expert_scaled_linear", [Differentiable, BecomesCall]> {
  let summary = "lm.expert_linear of 8-bit floats with scales for blocks";
  let description = [{
    `x` and `weight` are codes, those of `lm.quantize_rows` and `lm.quantize_tiles`. But for these, the
    operands, the result and `transposed` are those of `lm.expert_linear`. With `beside`, which is
    never with `transposed`, w_e `[out, in]` are one beside the other: `weight` is `[out, E in]`. A row
    of tiles has as many scales as tiles.

    The gradient of x is another such product, for which that of the result is cast to the format of
    x. The gradient of the weight is `lm.expert_linear_grad` of what the codes were made from: tensor
    cores sum up 8-bit floats only along rows, and the rows of an expert are in no whole blocks.
  }];
  let fields = (ins EightBitMatrix:$x, EightBitMatrix:$weight, Ids:$offsets, 2DTensorOf<[F32]>:$x_scales,
                    2DTensorOf<[F32]>:$weight_scales, UnitAttr:$transposed, UnitAttr:$beside);
  let results = (outs Matrix:$result);
  let form = "$x `,` $weight `,` $offsets `scales` $x_scales `,` $weight_scales";
}

def ExpertLinearGradOp : Lm_CheckedOp<"expert_linear_grad", [AccumulatingOpInterface, BecomesCall]> {
  let summary = "dw_e = sum of dy[r, :]^T x[r, :] over the rows r of each expert e (+ acc)";
  let description = [{
    `dy` `[R, out]`, `x` `[R, in]`, the result `[E out, in]`. An expert without rows gets zeros.
  }];
  let fields = (ins Matrix:$dy, Matrix:$x, Ids:$offsets, Optional<Matrix>:$acc);
  let form = "$dy `,` $x `,` $offsets (`acc` $acc^)?";
}

def ExpertSwigluOp : Lm_CheckedOp<"expert_swiglu", [Differentiable, FreeToRecompute, MlpActivation,
                                                 BecomesCall]> {
  let summary = "y[r, :] = silu(x[r, :w]) * x[r, w:] for the rows r of all experts";
  let description = [{
    `x` `[R, 2 w]`, whose rows are sorted by expert: the gates, then what they are multiplied by;
    `offsets` `[E + 1]` of `lm.sort_rows`; y `[R, w]`. It is `lm.swiglu` of the halves of x, but only
    of the rows below offsets[E], which costs less where there is room for many more rows. Rows of no
    expert may have any value in x and in y.
  }];
  let fields = (ins Matrix:$x, Ids:$offsets);
  let form = "$x `,` $offsets";
}

def ExpertSwigluGradOp : Lm_CheckedOp<"expert_swiglu_grad", [BecomesCall]> {
  let summary = "gradient of expert_swiglu for x";
  let description = [{
    `dy` `[R, w]`, `x` and the result `[R, 2 w]`. Rows of no expert may have any value in each of them.
  }];
  let fields = (ins Matrix:$dy, Matrix:$x, Ids:$offsets);
  let form = "$dy `,` $x `,` $offsets";
}

def BalanceLossOp : Lm_CheckedOp<"balance_loss", [Differentiable]> {
  let summary = "loss + factor * sum over e of counts[e] mass[e]";
  let description = [{
    `counts` and `mass` `[E]` are sums over layers of those of `lm.route`; `loss` is a scalar. The
    gradient for mass is factor * counts, times that of the result; counts has none. With factor
    = c E T / (L T)^2 for L layers of T tokens, this adds c times the loss of Fedus et al. 2021,
    https://arxiv.org/abs/2101.03961, for each of the T tokens.
  }];
  let fields = (ins Tensor0D:$loss, 1DTensorOf<[F32, F64]>:$counts, 1DTensorOf<[F32, F64]>:$mass,
                    F64Attr:$factor);
  let results = (outs Tensor0D:$result);
  let form = "$loss `,` $counts `,` $mass `factor` $factor";
}

def BalanceLossGradOp : Lm_PureOp<"balance_loss_grad"> {
  let summary = "dmass[e] = dloss factor counts[e]";
  let fields = (ins Tensor0D:$dloss, 1DTensorOf<[F32, F64]>:$counts, F64Attr:$factor);
  let results = (outs 1DTensorOf<[F32, F64]>:$result);
  let form = "$dloss `,` $counts `factor` $factor";
}

// An op whose result is only shown to people who watch the training. It has no gradient.
class Lm_WatchedOp<string mnemonic, list<Trait> traits = []>
    : Lm_PureOp<mnemonic, !listconcat([DifferentiableInPart], traits)> {
  let extraClassDefinition = [{
    bool $cppClass::hasGradient(unsigned) { return false; }
    ::lmc::Gradients $cppClass::buildVjp(::mlir::OpBuilder &, ::mlir::ValueRange) {
      return emitOpError("has no gradient");
    }
  }];
}

def BalanceTermsOp : Lm_WatchedOp<"balance_terms", [AllTypesMatch<["counts", "mass", "result"]>]> {
  let summary = "factor * counts[e] mass[e]: what each expert adds to a balancing loss";
  let description = [{
    `counts` and `mass` `[E]` of `lm.route`, or sums of them over layers. Only for people to watch:
    it has no gradient.
  }];
  let fields = (ins 1DTensorOf<[F32, F64]>:$counts, 1DTensorOf<[F32, F64]>:$mass, F64Attr:$factor);
  let results = (outs 1DTensorOf<[F32, F64]>:$result);
  let assemblyFormat = "$counts `,` $mass `factor` $factor `:` type($result) attr-dict";
}

def RouterEntropyOp : Lm_WatchedOp<"router_entropy"> {
  let summary = "entropy[e] = sum over tokens of -p log p, where p is the softmax of a row";
  let description = [{
    With `sigmoid`, p is the sigmoid of each element, divided by the sum of its row.
    `logits` `[T, E]`, the result `[E]`; the sum of its elements is T times the mean entropy of
    the router, in nats. Only for people to watch: it has no gradient.
  }];
  let fields = (ins Matrix:$logits, UnitAttr:$sigmoid);
  let results = (outs 1DTensorOf<[F32, F64]>:$result);
  let form = "$logits";
  let hasVerifier = 1;
}

def LateRowsOp : Lm_WatchedOp<"late_rows"> {
  let summary = "how many choices are computed in windows after the first";
  let description = [{
    `offsets` of each window's `lm.sort_rows`, `[E + 1]` each; the result `[1]` is the sum of the last
    elements of all but the first. Only for people to watch: it has no gradient.
  }];
  let fields = (ins Variadic<Ids>:$offsets);
  let results = (outs 1DTensorOf<[F32, F64]>:$result);
  let form = "$offsets";
  let hasVerifier = 1;
}

//===-- Head and loss -----------------------------------------------------------------------===//

def LinearCrossEntropyOp : Lm_CheckedOp<"linear_cross_entropy", [DifferentiableLoss]> {
  let summary = "sum over tokens of -log softmax(x weight^T)[target]";
  let description = [{
    `x` `[tokens, hidden]`, `weight` `[vocab, hidden]`, `targets` `[tokens]`; a
    negative target has no loss. Logits exist for `chunk` tokens at a time. With
    `classes` > 0, only the first `classes` rows of `weight` are classes: the others have
    the probability 0, and their gradient is 0.

    With `z_loss` = z, what is differentiated also has z lse^2 for each token with a target,
    where lse is the log of the softmax's denominator. The result does not. Chowdhery et al.
    2022, section 5, https://arxiv.org/abs/2204.02311.
  }];
  let fields = (ins Matrix:$x, Matrix:$weight, Ids:$targets, I64Attr:$chunk,
                    DefaultValuedAttr<I64Attr, "0">:$classes, OptionalAttr<F64Attr>:$z_loss);
  let results = (outs Tensor0D:$loss);
  let form = "$x `,` $weight `,` $targets `chunk` $chunk";
}

def LinearCrossEntropyGradOp
    : Lm_CheckedOp<"linear_cross_entropy_grad",
                [DeclareOpInterfaceMethods<AccumulatingOpInterface, ["getAccumulated"]>]> {
  let summary = "the loss together with its gradients, one pass over the logits";
  let description = [{
    `scale` is the cotangent of the loss. With p = softmax(x weight^T):
    dlogits = scale * (p - onehot(target)) for tokens with a target, else 0;
    dx = dlogits weight, dweight = dlogits^T x (+ acc). With `z_loss` = z, dlogits is
    scale * (p (1 + 2 z lse) - onehot(target)). `loss` equals the result of the forward op.
  }];
  let fields = (ins Matrix:$x, Matrix:$weight, Ids:$targets, Tensor0D:$scale,
                    Optional<Matrix>:$acc, I64Attr:$chunk,
                    DefaultValuedAttr<I64Attr, "0">:$classes, OptionalAttr<F64Attr>:$z_loss);
  let results = (outs Tensor0D:$loss, Matrix:$dx, Matrix:$dweight);
  let form = "$x `,` $weight `,` $targets `,` $scale (`acc` $acc^)? `chunk` $chunk";
}

//===-- Optimizer ---------------------------------------------------------------------------===//

def CastOp : Lm_PureOp<"cast", [SameOperandsAndResultShape]> {
  let summary = "the same values, rounded to another dtype";
  let fields = (ins FloatTensor:$x);
  let results = (outs FloatTensor:$result);
  let form = "$x";
}

def MaxAbsOp : Lm_PureOp<"max_abs"> {
  let summary = "the largest absolute value of all elements; NaN if one is NaN";
  let fields = (ins RankedTensorOf<[F32, BF16]>:$x);
  let results = (outs 0DTensorOf<[F32]>:$result);
  let form = "$x";
}

def ScaledCastOp : Lm_CheckedOp<"scaled_cast", [AllShapesMatch<["x", "result"]>]> {
  let summary = "casts between f32 and f16 with a power of two that keeps sums over ranks finite";
  let description = [{
    From f32 to f16: f16(x * 2^k). From f16 to f32: f32(x) * 2^-k. With `max`, the largest
    absolute value of all ranks, in [2^e, 2^(e+1)):
    k = 13 - ceil(log2(ranks)) - e, limited to [-126, 126].

    A sum over `ranks` ranks is then below 2^14. Rounding can at most double it, in whatever
    order it is formed: adding x to s changes s by at most 2 |x|, because s itself is an f16
    with an error of |x|. So no sum reaches 65504, the largest f16. Each rounding has an error
    of at most 2^-11 of the rounded value or, where that is more, of 2^-37 ranks max: below
    2^-14, f16 has a fixed spacing of 2^-24. If `max` is infinite or NaN, so are the elements
    that made it so.
  }];
  let fields = (ins RankedTensorOf<[F16, F32]>:$x, 0DTensorOf<[F32]>:$max, I64Attr:$ranks);
  let results = (outs RankedTensorOf<[F16, F32]>:$result);
  let form = "$x `,` $max `over` $ranks";
}

def ScaleOp : Lm_CheckedOp<"scale"> {
  let summary = "x * factor, with a scalar factor";
  let fields = (ins FloatTensor:$x, Tensor0D:$factor);
  let results = (outs FloatTensor:$result);
  let form = "$x `,` $factor";
}

def GlobalNormOp : Lm_CheckedOp<"global_norm"> {
  let summary = "L2 norm over all elements of all operands";
  let description = [{
    Two stages with a fixed order: the rows of each operand are summed, then all row
    sums are. The result therefore does not depend on the number of threads.
  }];
  let fields = (ins Variadic<FloatTensor>:$inputs);
  let results = (outs Tensor0D:$result);
  let form = "$inputs";
}

def GuardNormOp : Lm_CheckedOp<"guard_norm"> {
  let summary = "the gradient's norm, or infinity if the step must be left out";
  let description = [{
    The result is infinity if `norm` > `norm_limit` or `loss` > `loss_limit`, else `norm`. An
    optimizer changes nothing where the norm is infinite (`OptimizerOpInterface`), so this
    op leaves a step out that the host's limits forbid, and the host need not know the
    step's loss. A NaN exceeds no limit: it stays as it is.
  }];
  let fields = (ins Tensor0D:$norm, Tensor0D:$loss, Tensor0D:$norm_limit,
                    Tensor0D:$loss_limit);
  let results = (outs Tensor0D:$result);
  let form = "$norm `,` $loss `limits` $norm_limit `,` $loss_limit";
}

// Operands of AdamW: the gradient's norm, and scalars that the host writes before each step.
defvar AdamWScalars = (ins Tensor0D:$norm, Tensor0D:$lr, Tensor0D:$beta1, Tensor0D:$beta2,
                           Tensor0D:$eps, Optional<Tensor0D>:$weight_decay,
                           Tensor0D:$bias_correction1, Tensor0D:$bias_correction2,
                           Tensor0D:$clip_grad);

def AdamWOp : Lm_CheckedOp<"adamw", [DeclareOpInterfaceMethods<OptimizerOpInterface>]> {
  let summary = "one AdamW step with decoupled weight decay";
  let description = [{
    With g = gradient * min(1, clip_grad / (norm + 1e-6)) (clip_grad 0: g = gradient):
    p1 = p (1 - lr weight_decay); m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2;
    p = p1 - lr / bias_correction1 * m / (sqrt(v / bias_correction2) + eps).
    If `norm` is not finite, nothing changes. `compute` is the new
    parameter in the compute dtype. `update_sq` and `param_sq` hold, per row, the
    sum of squares of the change and of the new parameter. The order of
    operations is that of torch.optim.AdamW. Loshchilov and Hutter 2019,
    https://arxiv.org/abs/1711.05101.
  }];
  let fields = !con((ins FloatTensor:$parameter, FloatTensor:$gradient, FloatTensor:$moment1,
                         FloatTensor:$moment2), AdamWScalars);
  let results = (outs FloatTensor:$new_parameter, FloatTensor:$new_moment1,
                      FloatTensor:$new_moment2, Vector:$update_sq, Vector:$param_sq,
                      Optional<FloatTensor>:$compute);
  let form = [{
    $parameter `,` $gradient `,` $moment1 `,` $moment2 `norm` $norm `lr` $lr `betas` $beta1 $beta2
    `eps` $eps (`weight_decay` $weight_decay^)? `bias_corrections` $bias_correction1
    $bias_correction2 `clip_grad` $clip_grad
  }];
}

def BalanceBiasOp
    : Lm_PureOp<"balance_bias", [DeclareOpInterfaceMethods<
          OptimizerOpInterface, ["takes", "getFallback", "getRequirement"]>]> {
  let summary = "one step of a router's bias, which keeps experts equally busy";
  let description = [{
    p = p + speed sign(balanced - gradient), where the "gradient" says how many choices each expert
    got in the step (`lm.route` passes that back), and `balanced` is the number that each would get
    if all were equally busy. If `norm` is not finite, nothing changes. DeepSeek-AI 2024,
    https://arxiv.org/abs/2412.19437 (2.1.2); Wang et al. 2024, https://arxiv.org/abs/2408.15664.

    The optimizer of a parameter with the attribute `balanced`, whatever the job's optimizer is.
  }];
  let fields = (ins FloatTensor:$parameter, FloatTensor:$gradient, Tensor0D:$norm, Tensor0D:$speed,
                    F64Attr:$balanced);
  let results = (outs FloatTensor:$new_parameter, Vector:$update_sq, Vector:$param_sq,
                      Optional<FloatTensor>:$compute);
  let form = "$parameter `,` $gradient `norm` $norm `speed` $speed `balanced` $balanced";
}

def AdamW8bitOp
    : Lm_CheckedOp<"adamw8bit", [DeclareOpInterfaceMethods<
          OptimizerOpInterface, ["getNumSums", "takes", "getFallback", "getRequirement",
                                 "getStepName"]>]> {
  let summary = "one AdamW step whose moments are kept in 8 bits";
  let description = [{
    The formulas of `lm.adamw` in f32, on moments stored as 8-bit codes. Each 256
    consecutive elements, a moment block, share an f32 scale per moment, their largest
    magnitude. `moment1` and `moment2` have the shape of `parameter`, whose number of
    elements is a multiple of 256; a scale has one element per block. With c a code
    (unsigned for `moment2`) and s the scale of its block:

    moment1 = s sign(c) (|c| / 127)^4, moment2 = s (c / 255)^8.

    A step decodes both moments, updates them, and changes the parameter by the new
    moments. Only then are these rounded to codes: to the nearest |moment1 / s|^(1/4) and
    (moment2 / s)^(1/8). A second moment above zero never gets code 0. If `norm` is not
    finite, codes and scales do not change either. `update_sq` and `param_sq` hold sums
    per block.

    Rounding changes moment1 by at most 1.6% near the largest element of a block, 5% at a
    hundredth of it and 16% at a ten-thousandth; it changes sqrt(moment2) by half as much.
    Block-wise scales are those of Dettmers et al. 2022, https://arxiv.org/abs/2110.02861;
    passes/fusion/MomentCode.h explains why the codes differ from theirs.
  }];
  let fields = !con((ins FloatTensor:$parameter, FloatTensor:$gradient, Codes:$moment1,
                         FloatTensor:$moment1_scale, Codes:$moment2,
                         FloatTensor:$moment2_scale), AdamWScalars);
  let results = (outs FloatTensor:$new_parameter, Codes:$new_moment1,
                      FloatTensor:$new_moment1_scale, Codes:$new_moment2,
                      FloatTensor:$new_moment2_scale, Vector:$update_sq, Vector:$param_sq,
                      Optional<FloatTensor>:$compute);
  let form = [{
    $parameter `,` $gradient `,` $moment1 `scale` $moment1_scale `,` $moment2 `scale`
    $moment2_scale `norm` $norm `lr` $lr `betas` $beta1 $beta2 `eps` $eps (`weight_decay`
    $weight_decay^)? `bias_corrections` $bias_correction1 $bias_correction2 `clip_grad` $clip_grad
  }];
  let extraClassDeclaration = [{
    static constexpr int64_t kBlock = 256; // elements that share a scale
  }];
}

def MatrixAttr : Lm_Attr<"Matrix", "matrix"> {
  let summary = "a matrix within a tensor";
  let description = [{
    `[rows, columns]`, row-major, from element `offset` on. Columns behind the first `fan_in`
    are padding, which is zero.

    With `pitch` = p, the matrix is columns [`column`, `column` + `columns`) of a block of
    `rows` rows of p columns, which begins at `offset`. The matrices of a block stand one after
    the other, and fill it. With `transposed`, the rows are the inputs of the linear map
    (`rows` = `fan_in`), and the columns its outputs.
  }];
  let parameters = (ins "int64_t":$offset, "int64_t":$rows, "int64_t":$columns,
                        "int64_t":$fan_in, DefaultValuedParameter<"int64_t", "0">:$column,
                        DefaultValuedParameter<"int64_t", "0">:$pitch,
                        DefaultValuedParameter<"bool", "false">:$transposed);
  let assemblyFormat = "`<` struct(params) `>`";
  let builders = [
    // Builds a matrix whose rows are adjacent, and are the outputs of one linear map.
    AttrBuilder<(ins "int64_t":$offset, "int64_t":$rows, "int64_t":$columns, "int64_t":$fan_in), [{
      return $_get($_ctxt, offset, rows, columns, fan_in, 0, 0, false);
    }]>
  ];
}
def MatricesAttr : TypedArrayAttrBase<MatrixAttr, "matrices within a tensor">;

def AdjustLr : Lm_Enum<"AdjustLr", "how an update of Muon is scaled", [
  I32EnumCase<"Original", 0, "original">,
  I32EnumCase<"MatchRmsAdamW", 1, "match_rms_adamw">,
  I32EnumCase<"SpectralUnclamped", 2, "spectral_unclamped">
]>;
def AdjustLrAttr : EnumAttr<LmDialect, AdjustLr, "adjust_lr"> {
  let assemblyFormat = "`<` $value `>`";
}

// The Newton-Schulz steps of lm.muon and lm.orthogonalize, and their coefficients.
defvar NewtonSchulzFields = (ins DefaultValuedAttr<I64Attr, "5">:$ns_steps,
    DefaultValuedAttr<DenseF64ArrayAttr, "{3.4445, -4.775, 2.0315}">:$ns_coefficients);
// Where the matrices of a parameter lie in it, and how their updates are scaled.
defvar MatricesFields = (ins DefaultValuedAttr<MatricesAttr, "{}">:$matrices,
    DefaultValuedAttr<AdjustLrAttr, "::lmc::lm::AdjustLr::Original">:$adjust_lr_fn);

def MuonOp : Lm_CheckedOp<"muon", [DeclareOpInterfaceMethods<
      OptimizerOpInterface, ["takes", "getFallback", "getRequirement"]>]> {
  let summary = "one step of Muon: momentum, orthogonalized for each matrix";
  let description = [{
    With g = gradient * min(1, clip_grad / (norm + 1e-6)) (clip_grad 0: g = gradient):

    m = m + (1 - momentum) (g - m); d = m + (1 - momentum) (g - m) with the new m
    (d = m without `nesterov`); p1 = p (1 - lr weight_decay);
    p = p1 - lr scale orthogonalize(d) for each of `matrices`.

    `matrices` are the logical ones: q, k and v apart, though one parameter holds them. One that
    is stored transposed is orthogonalized as it is stored, which has the same result.
    `lm.orthogonalize` defines the function, which computes in `ns_dtype` (none: the dtype
    of the parameter), and `lm.scale_matrices` the scale. Elements of no matrix are padding.
    `norm`, `compute`, `update_sq` and `param_sq` are those of `lm.adamw`. The order of
    operations is that of torch.optim.Muon. Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon.

    `dist-expand-muon` replaces this op by `lm.muon_direction`, `lm.orthogonalize`,
    `lm.scale_matrices` and `lm.muon_update`, and by what ranks exchange between them.
  }];
  let fields = !con((ins FloatTensor:$parameter, FloatTensor:$gradient, FloatTensor:$moment1,
                         Tensor0D:$norm, Tensor0D:$lr, Tensor0D:$momentum, Tensor0D:$eps,
                         Optional<Tensor0D>:$weight_decay, Tensor0D:$clip_grad),
                    MatricesFields, NewtonSchulzFields,
                    (ins DefaultValuedAttr<BoolAttr, "true">:$nesterov,
                         OptionalAttr<TypeAttr>:$ns_dtype));
  let results = (outs FloatTensor:$new_parameter, FloatTensor:$new_moment1, Vector:$update_sq,
                      Vector:$param_sq, Optional<FloatTensor>:$compute);
  let form = [{
    $parameter `,` $gradient `,` $moment1 `norm` $norm `lr` $lr `momentum` $momentum `eps` $eps
    (`weight_decay` $weight_decay^)? `clip_grad` $clip_grad
  }];
}

def MuonDirectionOp : Lm_PureOp<"muon_direction"> {
  let summary = "the momentum of a step of lm.muon, and the direction that it orthogonalizes";
  let fields = (ins FloatTensor:$gradient, FloatTensor:$moment1, Tensor0D:$norm,
                    Tensor0D:$momentum, Tensor0D:$clip_grad, BoolAttr:$nesterov);
  let results = (outs FloatTensor:$new_moment1, FloatTensor:$direction);
  let form = "$gradient `,` $moment1 `norm` $norm `momentum` $momentum `clip_grad` $clip_grad";
}

def OrthogonalizeOp : Lm_CheckedOp<"orthogonalize", [AllTypesMatch<["x", "result"]>]> {
  let summary = "U V^T, about, of each matrix U S V^T of a stack";
  let description = [{
    `x` `[n rows, columns]` is a stack of n matrices of `rows` rows. Each becomes the result
    of `ns_steps` Newton-Schulz steps, with (a, b, c) = `ns_coefficients`:

    X = x / max(|x|, eps); then A = X X^T, B = b A + c A A, X = a X + B X.

    |x| is the Frobenius norm. A matrix with more rows than columns is transposed before and
    after. All of it is rounded to the dtype of `x`; sums are f32 (f64 for f64).
  }];
  let fields = !con((ins Matrix:$x, Tensor0D:$eps, I64Attr:$rows), NewtonSchulzFields);
  let form = "$x `rows` $rows `eps` $eps";
}

def ScaleMatricesOp : Lm_CheckedOp<"scale_matrices"> {
  let summary = "lays matrices into a tensor, each times the scale of its update";
  let description = [{
    The tensor's `matrices` are those of `parts`, in order, times a scale by `adjust_lr_fn`,
    where fan_out is the number of rows: sqrt(max(1, fan_out / fan_in)) (`original`),
    0.2 sqrt(max(fan_out, fan_in)) (`match_rms_adamw`), or sqrt(fan_out / fan_in)
    (`spectral_unclamped`). Elements of no matrix are 0. Liu et al. 2025,
    https://arxiv.org/abs/2502.16982, and Bernstein 2025,
    https://jeremybernste.in/writing/deriving-muon, derive the last two.
  }];
  let fields = !con((ins Variadic<Matrix>:$parts), MatricesFields);
  let results = (outs FloatTensor:$result);
  let form = "$parts";
}

def MuonUpdateOp : Lm_PureOp<"muon_update"> {
  let summary = "the last part of a step of lm.muon: p (1 - lr weight_decay) - lr orthogonal";
  let fields = (ins FloatTensor:$parameter, FloatTensor:$orthogonal, Tensor0D:$norm, Tensor0D:$lr,
                    Optional<Tensor0D>:$weight_decay);
  let results = (outs FloatTensor:$new_parameter, Vector:$update_sq, Vector:$param_sq,
                      Optional<FloatTensor>:$compute);
  let form = "$parameter `,` $orthogonal `norm` $norm `lr` $lr (`weight_decay` $weight_decay^)?";
}

def OwnRowsOp : Lm_CheckedOp<"own_rows"> {
  let summary = "the rows of a matrix that belong to a rank";
  let description = [{
    With n rows in the result, row i is row `rank` n + i of `whole`. `rank` is a whole number,
    the rank's position along the axis `shard`.
  }];
  let fields = (ins Matrix:$whole, Tensor0D:$rank);
  let form = "$whole `of` $rank";
}

def NormOfPartsOp : Lm_CheckedOp<"norm_of_parts"> {
  let summary = "square root of the sum of all elements of all operands";
  let fields = (ins Variadic<Vector>:$parts);
  let results = (outs Tensor0D:$result);
  let form = "$parts";
}

#endif
