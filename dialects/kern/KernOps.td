// The kern dialect: each op becomes one kernel or one library call.

#ifndef LMC_DIALECTS_KERN
#define LMC_DIALECTS_KERN

include "dialects/interfaces/Command.td"
include "dialects/interfaces/Step.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def KernDialect : Dialect {
  let name = "kern";
  let cppNamespace = "::lmc::kern";
  let summary = "Kernels and library calls on tensors";
  let description = [{
    This level is still pure SSA. A `kern.fusion` holds a region of MLIR's
    `linalg.generic`, `arith` and `math` ops that one generated kernel computes. Its
    *hero* names the loop structure (see compiler/kernels/Hero.h); `canEmit` of the hero
    accepts the region of every existing fusion. GEMM and attention are calls to a
    library or a template.

    An op that can add to an accumulator takes it as the optional operand `acc`. The
    result is then `acc + f(...)`, and buffer placement gives both the same bytes.
  }];
}

class Kern_Op<string mnemonic, list<Trait> traits = []> : Op<KernDialect, mnemonic, traits>;

// An op of a training step: `fields` are its own operands and attributes.
class Kern_StepOp<string mnemonic, list<Trait> traits = []>
    : Kern_Op<mnemonic, !listconcat(traits, [Pure, StepOpInterface])> {
  dag fields = (ins);
  let arguments = !con(fields, StepFields);
}

// An op that a library or a template computes. It becomes one command; `operands` lists the values
// that the command reads and writes. The op is written as `form`, followed by its types.
class Kern_Call<string mnemonic, string operands, list<Trait> traits = []>
    : Kern_StepOp<mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<CommandOpInterface>,
                                                 DeclareOpInterfaceMethods<PlannedOpInterface>])> {
  string form = "";
  let assemblyFormat = form # " `:` functional-type(operands, results) attr-dict";
  let extraClassDefinition = CommandOperandList<operands>.definition;
}

// A call that ground/plan/commands.toml describes; `create` is the C++ body of createCommand().
class Kern_TableCall<string mnemonic, string operands, string create, list<Trait> traits = []>
    : Kern_Call<mnemonic, operands, traits> {
  let extraClassDefinition = CommandOperandList<operands>.definition #
      "void $cppClass::createCommand(::mlir::OpBuilder &b,\n"
      "    ::llvm::function_ref<::mlir::Value(::mlir::Value)> sliceOf, ::mlir::Value scratch) {\n"
      # create # "}\n";
}

def Hero : I32EnumAttr<"Hero", "loop structure of a generated kernel", [
  I32EnumAttrCase<"Elementwise", 0, "elementwise">,
  I32EnumAttrCase<"RowReduction", 1, "row_reduction">,
  I32EnumAttrCase<"ColumnReduction", 2, "column_reduction">,
  I32EnumAttrCase<"Gather", 3, "gather">
]> { let cppNamespace = "::lmc::kern"; }

def FusionOp : Kern_StepOp<"fusion", [IsolatedFromAbove, SingleBlock]> {
  let summary = "a region of scalar-level ops that one generated kernel computes";
  let description = [{
    Block arguments are the inputs, in order. The region holds only
    `linalg.generic`, `linalg.fill`, `tensor.empty`, `tensor.insert_slice` and
    `arith.constant`.

    ```mlir
    %y = kern.fusion elementwise (%a = %x : tensor<8x16xf32>) -> tensor<8x16xf32> {
      %e = tensor.empty() : tensor<8x16xf32>
      %r = linalg.generic {...} ins(%a : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {...}
      kern.yield %r : tensor<8x16xf32>
    }
    ```
  }];
  let fields = (ins Hero:$hero, Variadic<AnyRankedTensor>:$inputs,
                    OptionalAttr<StrArrayAttr>:$source_ops);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def YieldOp : Kern_Op<"yield", [Pure, Terminator, ParentOneOf<["FusionOp", "KernelOp"]>]> {
  let summary = "the results of a fusion or kernel";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def KernelOp : Kern_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock]> {
  let summary = "a fusion's region as a symbol, shared by all its launches";
  let description = [{
    `arg_rows` and `arg_pitches`, one number per input and result, are set when buffers
    are placed. An argument with pitch P > 0 consists of `arg_rows` runs of elements that
    begin P elements apart.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Hero:$hero,
                       OptionalAttr<StrArrayAttr>:$source_ops,
                       OptionalAttr<DenseI64ArrayAttr>:$arg_rows,
                       OptionalAttr<DenseI64ArrayAttr>:$arg_pitches);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name $hero attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def LaunchOp : Kern_StepOp<"launch", [DeclareOpInterfaceMethods<CommandOpInterface>,
                                      DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one run of a kernel";
  let fields = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $kernel `(` $inputs `)` `:` functional-type(operands, results) attr-dict
  }];
}

def Kern_Matrix : 2DTensorOf<[F32, BF16, F64]>;

// Factors of a product that has scales.
def Kern_Factor : 2DTensorOf<[F32, BF16, F64, F8E4M3FN, F8E5M2]>;

def GemmOp : Kern_Call<"gemm", [{
    {"a", getA()}, {"b", getB()}, {"bias", getBias()}, {"residual", getResidual()},
    {"scale_a", getScaleA()}, {"scale_b", getScaleB()},
    {"acc", getAcc(), Accumulate}, {"d", getResult(), Write}
  }], [AttrSizedOperandSegments]> {
  let summary = "op(a) op(b) (+ acc) (+ bias) (+ residual), a library call";
  let description = [{
    `a` `[m, k]` (`[k, m]` with `transpose_a`), `b` `[k, n]` (`[n, k]` with
    `transpose_b`), `acc`, `residual` and the result `[m, n]`, `bias` `[n]`. The result takes the
    place of `acc`; `residual` stays as it is. There is at most one of the two.

    With `batch` = c, each matrix is a stack of c matrices of these shapes, one above the
    other, and c products are made. They have neither bias nor residual.

    Factors of 8 bits have scales, as in `lm.scaled_matmul`.
  }];
  let fields = (ins Kern_Factor:$a, Kern_Factor:$b, Optional<Kern_Matrix>:$acc,
                    Optional<1DTensorOf<[F32, BF16, F64]>>:$bias, Optional<Kern_Matrix>:$residual,
                    Optional<RankedTensorOf<[F32]>>:$scale_a,
                    Optional<RankedTensorOf<[F32]>>:$scale_b, UnitAttr:$transpose_a,
                    UnitAttr:$transpose_b, UnitAttr:$tiles,
                    DefaultValuedAttr<I64Attr, "1">:$batch);
  let builders = [
    // Creates a product without scales.
    OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$a, "::mlir::Value":$b,
                   "::mlir::Value":$acc, "::mlir::Value":$bias, "::mlir::Value":$residual,
                   "bool":$transpose_a, "bool":$transpose_b, CArg<"uint64_t", "1">:$batch), [{
      build($_builder, $_state, type, a, b, acc, bias, residual, ::mlir::Value(), ::mlir::Value(),
            transpose_a, transpose_b, /*tiles=*/false, batch);
    }]>
  ];
  let results = (outs Kern_Matrix:$result);
  let form = "$a `,` $b (`scales` $scale_a^ `,` $scale_b)? (`acc` $acc^)? (`bias` $bias^)? (`residual` $residual^)?";
  let hasVerifier = 1;
}

def LinearSwigluOp : Kern_Call<"linear_swiglu", [{
    {"x", getX()}, {"weight", getWeight()}, {"gu", getGu(), Write}, {"a", getA(), Write}
  }]> {
  let summary = "a matrix product and the SwiGLU of its halves, by a library or a template";
  let description = [{Operands and attributes are those of `lm.linear_swiglu`.}];
  let fields = (ins Kern_Matrix:$x, Kern_Matrix:$weight, UnitAttr:$both);
  let results = (outs Kern_Matrix:$gu, Kern_Matrix:$a);
  let form = "$x `,` $weight";
}

def SwigluLinearGradOp : Kern_Call<"swiglu_linear_grad", [{
    {"dy", getDy()}, {"weight", getWeight()}, {"gu", getGu(), Accumulate},
    {"dgu", getDgu(), Write}, {"a", getA(), Write}
  }]> {
  let summary = "a matrix product and the gradient of SwiGLU, by a library or a template";
  let description = [{
    Operands and attributes are those of `lm.swiglu_linear_grad`. dgu takes the place of gu.
  }];
  let fields = (ins Kern_Matrix:$dy, Kern_Matrix:$weight, Kern_Matrix:$gu, UnitAttr:$both);
  let results = (outs Kern_Matrix:$dgu, Kern_Matrix:$a);
  let form = "$dy `,` $weight `,` $gu";
}

def AttentionOp : Kern_Call<"attention", [{
    {"q", getQ(), Read, mayBeSpaced}, {"k", getK(), Read, mayBeSpaced},
    {"v", getV(), Read, mayBeSpaced}, {"starts", getStarts()},
    {"out", getResult(), Write}, {"lse", getLse(), Write}, {"largest", getLargest(), Write}
  }]> {
  let summary = "flash attention forward, a template call";
  let description = [{Operands and attributes are those of `lm.attention`.}];
  let fields = (ins Kern_Matrix:$q, Kern_Matrix:$k, Kern_Matrix:$v,
                    Optional<1DTensorOf<[I32]>>:$starts, I64Attr:$head_dim, I64Attr:$seq,
                    F64Attr:$scale, I64Attr:$window);
  let results = (outs Kern_Matrix:$result, 2DTensorOf<[F32, F64]>:$lse,
                      Optional<2DTensorOf<[F32, F64]>>:$largest);
  let form = "$q `,` $k `,` $v (`starts` $starts^)?";
  let hasVerifier = 1;
}

def AttentionGradOp : Kern_Call<"attention_grad", [{
    {"q", getQ(), Read, mayBeSpaced}, {"k", getK(), Read, mayBeSpaced},
    {"v", getV(), Read, mayBeSpaced}, {"out", getOut()}, {"lse", getLse()},
    {"dout", getDout()}, {"starts", getStarts()}, {"cos", getCos()}, {"sin", getSin()},
    {"dq", getDq(), Write, mayBeSpaced}, {"dk", getDk(), Write, mayBeSpaced},
    {"dv", getDv(), Write, mayBeSpaced}, {"largest", getLargest(), Write}
  }], [AttrSizedOperandSegments]> {
  let summary = "flash attention backward, a template call";
  let description = [{Operands and attributes are those of `lm.attention_grad`.}];
  let fields = (ins Kern_Matrix:$dout, Kern_Matrix:$q, Kern_Matrix:$k,
                    Kern_Matrix:$v, Kern_Matrix:$out, 2DTensorOf<[F32, F64]>:$lse,
                    Optional<1DTensorOf<[I32]>>:$starts, Optional<Kern_Matrix>:$cos,
                    Optional<Kern_Matrix>:$sin, I64Attr:$head_dim, I64Attr:$seq,
                    F64Attr:$scale, I64Attr:$window);
  let results = (outs Kern_Matrix:$dq, Kern_Matrix:$dk, Kern_Matrix:$dv,
                      Optional<2DTensorOf<[F32, F64]>>:$largest);
  let form = [{
    $dout `,` $q `,` $k `,` $v `,` $out `,` $lse (`starts` $starts^)? (`rope` $cos^ `,` $sin)?
  }];
  let hasVerifier = 1;
}

include "dialects/kern/Commands.td"

#endif
