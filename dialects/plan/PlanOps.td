// The plan dialect: explicit memory. Each op corresponds to one table of the plan file.

#ifndef LMC_DIALECTS_PLAN
#define LMC_DIALECTS_PLAN

include "dialects/interfaces/Command.td"
include "dialects/interfaces/Step.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def PlanDialect : Dialect {
  let name = "plan";
  let cppNamespace = "::lmc::plan_ir";
  let summary = "Arenas, slices and commands: what the runtime executes";
  let description = [{
    Buffers alias, so this level cannot be converted back to tensors. Every op
    corresponds to a table of ground/plan/plan.fbs. Commands run in order; each reads
    and writes only the slices that it names.
  }];
  let dependentDialects = ["::lmc::lm::LmDialect"];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

def SliceType : TypeDef<PlanDialect, "Slice"> {
  let mnemonic = "slice";
  let summary = "a typed range of bytes of an arena";
  let parameters = (ins "::mlir::RankedTensorType":$content);
  let assemblyFormat = "`<` $content `>`";
}

def Category : I32EnumAttr<"Category", "what a function's bytes are held for", [
  I32EnumAttrCase<"Activations", 0, "activations">,
  I32EnumAttrCase<"Temporaries", 1, "temporaries">,
  I32EnumAttrCase<"LibraryWorkspace", 2, "library_workspace">
]> { let cppNamespace = "::lmc::plan_ir"; }

// An attribute of the lm dialect (dialects/lm/LmOps.td).
class LmAttr<string name> : Attr<CPred<"::llvm::isa<::lmc::lm::" # name # ">($_self)">> {
  let summary = "lm::" # name;
  let storageType = "::lmc::lm::" # name;
  let returnType = storageType;
  let convertFromStorage = "$_self";
}
class LmEnumAttr<string enum> : LmAttr<enum # "Attr"> {
  let returnType = "::lmc::lm::" # enum;
  let convertFromStorage = "$_self.getValue()";
  let constBuilderCall = "::lmc::lm::" # enum # "Attr::get($_builder.getContext(), $0)";
}

// The attributes through which the passes of passes/buffers hand over their results.

class Plan_Attr<string name, string attrMnemonic> : AttrDef<PlanDialect, name> {
  let mnemonic = attrMnemonic;
  let assemblyFormat = "`<` struct(params) `>`";
}

def ViewAttr : Plan_Attr<"View", "view"> {
  let summary = "where a tensor lies in a buffer of its function";
  let description = [{
    The view begins at byte `offset` of the buffer. With a `pitch`, the view consists of
    `rows` runs of equally many bytes, and the beginnings of two neighbours are `pitch` bytes
    apart.
  }];
  let parameters = (ins "unsigned":$buffer, DefaultValuedParameter<"int64_t", "0">:$offset,
                        DefaultValuedParameter<"int64_t", "1">:$rows,
                        DefaultValuedParameter<"int64_t", "0">:$pitch);
}

def BufferAttr : Plan_Attr<"Buffer", "buffer"> {
  let summary = "bytes that tensors of a function share";
  let description = [{
    The buffer is live from op `first` to op `last` of the function, counted from 0. No op
    uses the buffer if `last` is smaller than `first`. With a `variable`, the bytes are those
    of the variable.
  }];
  let parameters = (ins "uint64_t":$bytes, DefaultValuedParameter<"int64_t", "0">:$first,
                        DefaultValuedParameter<"int64_t", "-1">:$last,
                        DefaultValuedParameter<"::lmc::plan_ir::Category",
                                               "::lmc::plan_ir::Category::Temporaries">:$category,
                        StringRefParameter<"the state whose bytes these are", [{""}]>:$variable);
}

def BufferCopyAttr : Plan_Attr<"BufferCopy", "copy"> {
  let summary = "bytes that are copied before an op runs";
  let parameters = (ins "::lmc::plan_ir::ViewAttr":$from, "::lmc::plan_ir::ViewAttr":$to,
                        "::mlir::RankedTensorType":$type);
}

def ScratchAttr : Plan_Attr<"Scratch", "scratch"> {
  let summary = "the buffer of the scratch memory that an op's command needs";
  let parameters = (ins "unsigned":$buffer, "::mlir::RankedTensorType":$type);
}

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<PlanDialect, mnemonic, traits>;

def ArenaOp : Plan_Op<"arena", [Symbol]> {
  let summary = "a pool of device memory, allocated once";
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$bytes, I64Attr:$alignment,
                       I64Attr:$lower_bound);
  let assemblyFormat = [{
    $sym_name `bytes` $bytes `alignment` $alignment `lower_bound` $lower_bound attr-dict
  }];
  let hasVerifier = 1;
}

def VariableOp : Plan_Op<"variable", [Symbol]> {
  let summary = "a variable of the lm level at its place in an arena";
  let description = [{The attributes are those of `lm.variable`.}];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$arena, I64Attr:$offset,
                       TypeAttrOf<AnyRankedTensor>:$type, LmEnumAttr<"VariableKind">:$kind,
                       LmAttr<"InitAttr">:$init, UnitAttr:$weight_decay,
                       OptionalAttr<StrAttr>:$parameter,
                       OptionalAttr<TypedArrayAttrBase<LmAttr<"PartAttr">, "parts">>:$parts,
                       UnitAttr:$anonymous, OptionalAttr<StrAttr>:$setting,
                       OptionalAttr<LmEnumAttr<"StepValue">>:$step_value,
                       OptionalAttr<I64Attr>:$shards,
                       OptionalAttr<TypedArrayAttrBase<LmAttr<"ShardedAttr">, "tensors">>:$sharded,
                       OptionalAttr<LmAttr<"GroupAttr">>:$group,
                       DefaultValuedAttr<I64Attr, "1">:$groups);
  let assemblyFormat = [{
    $sym_name `at` $arena `[` $offset `]` `:` $type $kind `init` $init (`setting` $setting^)?
    (`step_value` $step_value^)? attr-dict
  }];
}

def FunctionOp : Plan_Op<"function", [Symbol, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "a fixed sequence of commands at fixed addresses";
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$peak_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `peak` $peak_bytes attr-dict-with-keyword $body";
}

def SliceOp : Plan_Op<"slice", [Pure]> {
  let summary = "a placed buffer, or a view of one";
  let description = [{
    The buffer's bytes are live from command `first` to command `last` of the function,
    both included. With a `pitch` the slice consists of `rows` equal runs of bytes that
    begin `pitch` bytes apart: columns of a wider tensor.
  }];
  let arguments = (ins FlatSymbolRefAttr:$arena, I64Attr:$offset, Category:$category,
                       StrAttr:$source, I64Attr:$first, I64Attr:$last,
                       DefaultValuedAttr<I64Attr, "1">:$rows,
                       DefaultValuedAttr<I64Attr, "0">:$pitch);
  let results = (outs SliceType:$result);
  let assemblyFormat = [{
    $arena `[` $offset `]` $category $source `live` `[` $first `,` $last `]` `:` type($result)
    attr-dict
  }];
  let hasVerifier = 1;
}

def VariableRefOp : Plan_Op<"variable_ref", [Pure]> {
  let summary = "the slice of a variable, or rows or columns of it";
  let arguments = (ins FlatSymbolRefAttr:$variable, DefaultValuedAttr<I64Attr, "0">:$offset,
                       DefaultValuedAttr<I64Attr, "1">:$rows,
                       DefaultValuedAttr<I64Attr, "0">:$pitch);
  let results = (outs SliceType:$result);
  let assemblyFormat = "$variable `:` type($result) attr-dict";
  let hasVerifier = 1;
}

// The format of one operand of a command: a line of the command's text, with the operand's name,
// its slice and, as a comment, the role, the place and the bytes of the slice. The operand "bias?"
// has no line if the command lacks it.
class Line<string operand> {
  string name = !subst("?", "", operand);
  string format = "`` custom<" # !if(!eq(name, operand), "", "Optional") # "Operand>(\"\\\"" # name
                  # "\\\"\", $" # name # ", type($" # name # ")) ";
}
// The format of a command's text: the op with its attributes, then a line per operand.
class CommandFormat<list<string> operands> {
  string format = "attr-dict ` ` `(` " # !interleave(!foreach(operand, operands,
                  Line<operand>.format), "") # "`\\n` `)`";
}

// The base class of a command's op. `fields` are the operands and attributes that only this op has.
class Plan_CommandOp<string mnemonic, list<Trait> traits = []>
    : Plan_Op<mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<CommandOpInterface>,
                                             StepOpInterface])> {
  dag fields = (ins);
  let arguments = !con(fields, StepFields);
}
// The base class of a command's op. `operands` lists the slices that the command reads and writes.
class Plan_Command<string mnemonic, string operands, list<Trait> traits = []>
    : Plan_CommandOp<mnemonic, traits> {
  let extraClassDefinition = CommandOperandList<operands>.definition;
}

def LaunchOp : Plan_CommandOp<"launch"> {
  let summary = "runs work items [0, items) of a kernel, chunk by chunk";
  let fields = (ins FlatSymbolRefAttr:$kernel, Variadic<SliceType>:$args, I64Attr:$inputs,
                    I64Attr:$items, I64Attr:$chunk);
  let assemblyFormat = [{
    $kernel `items` $items `chunk` $chunk attr-dict ` ` `(` ``
    custom<Arguments>($args, type($args), $inputs) `\n` `)`
  }];
  let hasVerifier = 1;
}

def GemmOp : Plan_Command<"gemm", [{
    {"a", getA()}, {"b", getB()}, {"bias", getBias()}, {"residual", getResidual()},
    {"scale_a", getScaleA()}, {"scale_b", getScaleB()}, {"d", getD(), getAccumulate() ? Accumulate : Write}, {"workspace", getWorkspace(), Scratch}
  }], [AttrSizedOperandSegments]> {
  let summary = "d = op(a) op(b) (scale_a scale_b) (+ d) (+ bias) (+ residual)";
  let fields = (ins SliceType:$a, SliceType:$b, SliceType:$d, Optional<SliceType>:$bias,
                    Optional<SliceType>:$residual, Optional<SliceType>:$scale_a,
                    Optional<SliceType>:$scale_b, Optional<SliceType>:$workspace,
                    UnitAttr:$accumulate, UnitAttr:$transpose_a, UnitAttr:$transpose_b,
                    UnitAttr:$tiles, DefaultValuedAttr<I64Attr, "1">:$batch);
  let assemblyFormat = CommandFormat<["a", "b", "bias?", "residual?", "scale_a?", "scale_b?", "d", "workspace?"]>.format;
  let hasVerifier = 1;
}

def LinearSwigluOp : Plan_Command<"linear_swiglu", [{
    {"x", getX()}, {"weight", getWeight()}, {"gu", getGu(), Write}, {"a", getA(), Write},
    {"workspace", getWorkspace(), Scratch}
  }]> {
  let summary = "gu = x weight^T, a = silu(g) u with the halves g and u of gu";
  let fields = (ins SliceType:$x, SliceType:$weight, SliceType:$gu, SliceType:$a,
                    Optional<SliceType>:$workspace, UnitAttr:$both);
  let assemblyFormat = CommandFormat<["x", "weight", "gu", "a", "workspace?"]>.format;
}

def SwigluLinearGradOp : Plan_Command<"swiglu_linear_grad", [{
    {"dy", getDy()}, {"weight", getWeight()}, {"dgu", getDgu(), Accumulate}, {"a", getA(), Write},
    {"workspace", getWorkspace(), Scratch}
  }]> {
  let summary = "the gradients of the halves g and u, which they take the place of";
  let description = [{Before the command, `dgu` has g and u.}];
  let fields = (ins SliceType:$dy, SliceType:$weight, SliceType:$dgu, SliceType:$a,
                    Optional<SliceType>:$workspace, UnitAttr:$both);
  let assemblyFormat = CommandFormat<["dy", "weight", "dgu", "a", "workspace?"]>.format;
}

include "dialects/plan/Commands.td"

def CopyOp : Plan_Command<"copy", [{
    {"x", getX(), Read, mayBeSpaced}, {"d", getD(), Write, mayBeSpaced}
  }]> {
  let summary = "d = x";
  let fields = (ins SliceType:$x, SliceType:$d);
  let assemblyFormat = CommandFormat<["x", "d"]>.format;
  let hasVerifier = 1;
}

def Axis : I32EnumAttr<"Axis", "an axis of the mesh of ranks", [
  I32EnumAttrCase<"Replicate", 0, "replicate">,
  I32EnumAttrCase<"Shard", 1, "shard">,
  I32EnumAttrCase<"Expert", 2, "expert">,
  I32EnumAttrCase<"ExpertShard", 3, "expert_shard">
]> { let cppNamespace = "::lmc::plan_ir"; }

// A collective of all ranks along an axis, each of which runs the same command. With `async` the
// commands after it run at the same time, until a plan.wait.
class Plan_Collective<string mnemonic> : Plan_Command<mnemonic, [{
    {"x", getX()}, {"d", getD(), Write}
  }]> {
  let fields = (ins SliceType:$x, SliceType:$d, FlatSymbolRefAttr:$mesh, Axis:$axis,
                    UnitAttr:$async);
  let assemblyFormat = CommandFormat<["x", "d"]>.format;
}

def AllGatherOp : Plan_Collective<"all_gather"> {
  let summary = "d = the x of all ranks along the axis, side by side";
}
def ReduceScatterOp : Plan_Collective<"reduce_scatter"> {
  let summary = "d = this rank's piece of the sum of x over all ranks along the axis";
}
def AllReduceOp : Plan_Command<"all_reduce", [{{"d", getD(), Accumulate} }]> {
  let summary = "d = the sum of d over all ranks along the axis";
  let fields = (ins SliceType:$d, FlatSymbolRefAttr:$mesh, Axis:$axis, UnitAttr:$async,
                    UnitAttr:$accumulate);
  let assemblyFormat = CommandFormat<["d"]>.format;
}
def WaitOp : Plan_Command<"wait", [{{"d", getD(), Accumulate} }]> {
  let summary = "waits for the async collective that writes d, and for those that it came after";
  let fields = (ins SliceType:$d, UnitAttr:$accumulate);
  let assemblyFormat = CommandFormat<["d"]>.format;
}

#endif
