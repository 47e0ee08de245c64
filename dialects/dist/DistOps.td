// The dist dialect: the state that each rank has, and what ranks exchange.

#ifndef LMC_DIALECTS_DIST
#define LMC_DIALECTS_DIST

include "dialects/interfaces/Command.td"
include "dialects/interfaces/Differentiable.td"
include "dialects/interfaces/Step.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def DistDialect : Dialect {
  let name = "dist";
  let cppNamespace = "::lmc::dist";
  let summary = "A named mesh of ranks and collectives over its axes";
  let description = [{
    A mesh has two axes. `shard` ranks split state between them; `replicate` ranks
    hold copies. ZeRO over all ranks is `replicate = 1`; HYBRID_SHARD shards
    inside a node and replicates across nodes. Collectives are pure on tensors;
    the rank is a run-time scalar, so one program serves all ranks.

    With expert parallelism the axis `shard` is itself a grid: `experts` neighbours have the
    experts of a layer between them, each 1/experts of them (the axis `expert`), and the
    shard / experts ranks that have the same experts divide the state of these (the axis
    `expert_shard`). The rank with position i along `shard` has position i mod experts along
    `expert` and i / experts along `expert_shard`.

    A collective with `async` only starts: the ops after it run at the same time, until
    `dist.wait` gives its result. Collectives along one axis run one after the other, in the
    order of the program, on all ranks; those along different axes may run at the same time. An
    async collective may take the unfinished result of an earlier one as its input, and starts
    when that one has ended; only `dist.wait` may read an unfinished result otherwise.

    ```mlir
    %s = dist.reduce_scatter %g over @ranks shard : (tensor<8xf32>) -> tensor<2xf32> {async}
    %t = dist.all_reduce %s over @ranks replicate : (tensor<2xf32>) -> tensor<2xf32> {async}
    ... // ops that run at the same time
    %sum = dist.wait %t of %g : (tensor<2xf32>, tensor<8xf32>) -> tensor<2xf32>
    ```
  }];
}

def Axis : I32EnumAttr<"Axis", "an axis of the mesh", [
  I32EnumAttrCase<"Replicate", 0, "replicate">,
  I32EnumAttrCase<"Shard", 1, "shard">,
  I32EnumAttrCase<"Expert", 2, "expert">,
  I32EnumAttrCase<"ExpertShard", 3, "expert_shard">
]> { let cppNamespace = "::lmc::dist"; }

// The slices of a collective. One that works in place writes its result over its input.
class CommandRole<string operands_> { string operands = operands_; }
def OutOfPlace : CommandRole<[{{"x", getInput()}, {"d", getResult(), Write} }]>;
def InPlace : CommandRole<[{{"acc", getInput(), Accumulate}, {"d", getResult(), Write} }]>;
def InPlaceWait : CommandRole<[{{"acc", getStarted(), Accumulate}, {"d", getResult(), Write} }]>;

class Dist_Op<string mnemonic, list<Trait> traits = []> : Op<DistDialect, mnemonic, traits>;

def MeshOp : Dist_Op<"mesh", [Symbol]> {
  let summary = "the ranks of the job, as replicate x shard";
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$replicate, I64Attr:$shard,
                       DefaultValuedAttr<I64Attr, "1">:$experts);
  let assemblyFormat = [{
    $sym_name `(` `replicate` `=` $replicate `,` `shard` `=` $shard (`,` `experts` `=` $experts^)?
    `)` attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t ranksAlong(Axis axis);
  }];
}

class Dist_Collective<string mnemonic, CommandRole role, list<Trait> traits = []>
    : Dist_Op<mnemonic, !listconcat(traits, [Pure, DeclareOpInterfaceMethods<CommandOpInterface>,
                                             DeclareOpInterfaceMethods<PlannedOpInterface>,
                                             StepOpInterface])> {
  let arguments = !con((ins AnyRankedTensor:$input, FlatSymbolRefAttr:$mesh, Axis:$axis,
                            UnitAttr:$async), StepFields);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `over` $mesh $axis `:` functional-type(operands, results) attr-dict";
  let hasVerifier = 1;
  let extraClassDefinition = PlainCommand<role.operands>.definition;
}

// The gradient of an all-gather is a reduce-scatter, and the reverse. In a reduce-scatter, each
// rank adds a term to every sum, and one rank keeps the sum. The gradient of each term is that of
// the sum, so all ranks gather the gradients of the sums.
def AllGatherOp
    : Dist_Collective<"all_gather", OutOfPlace,
                      [DeclareOpInterfaceMethods<DifferentiableOpInterface, ["hasGradient"]>]> {
  let summary = "joins the ranks' pieces along dimension 0";
}
def ReduceScatterOp
    : Dist_Collective<"reduce_scatter", OutOfPlace,
                      [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "sums over ranks and leaves each its piece of dimension 0";
}
def AllReduceOp : Dist_Collective<"all_reduce", InPlace> {
  let summary = "sums over ranks";
}

def WaitOp : Dist_Op<"wait", [Pure, DeclareOpInterfaceMethods<CommandOpInterface>,
                              DeclareOpInterfaceMethods<PlannedOpInterface>, StepOpInterface,
                              AllTypesMatch<["started", "result"]>]> {
  let summary = "waits for an async collective and gives its result";
  let description = [{
    The result has the bytes of `started`. What the collective came after has ended too: those
    before it along its axis, and those whose unfinished results it takes. `inputs` are the finished values that it, or collectives whose unfinished results
    it takes, still read: no op may write over them before the wait. The input of an all-reduce
    is not among them, as an all-reduce works in the bytes of its result.
  }];
  let arguments = !con((ins AnyRankedTensor:$started, Variadic<AnyRankedTensor>:$inputs),
                       StepFields);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$started (`of` $inputs^)? `:` functional-type(operands, results) attr-dict";
  let hasVerifier = 1;
  let extraClassDefinition = PlainCommand<InPlaceWait.operands>.definition;
}

#endif
