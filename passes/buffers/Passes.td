// Phase 7: every value gets its place in memory.

#ifndef LMC_PASSES_BUFFERS
#define LMC_PASSES_BUFFERS

include "mlir/Pass/PassBase.td"

def PlaceBuffersPass : Pass<"plan-place-buffers", "::mlir::ModuleOp"> {
  let summary = "places every tensor in an arena and turns ops into commands";
  let description = [{
    Variables get fixed places in `@state`. In each function, values become buffers.
    Accumulators, values stored to variables, slices of rows and reshapes share the bytes
    of the values that they alias. A kernel's result is written over an input that no
    later op reads, if the kernel may write in place. All other buffers are packed into
    `@workspace` by their live ranges (compiler/algorithms/Packing.h). The functions run
    one after the other, so `@workspace` is as large as the largest of them needs. It also
    holds the scratch of commands that need some on the target.

    A checker that does not know how places were chosen (CheckAliasing.h) then runs the
    commands and the function side by side, with symbols for values. A command that would
    read other bytes than its op is an error.

    ```mlir
    %y = kern.launch @mlp(%g, %u) : ...
    ```
    becomes
    ```mlir
    %0 = plan.slice @workspace[4096] activations "layers.0/mlp" : !plan.slice<tensor<8x16xf32>>
    plan.launch @mlp(%g, %u, %0) inputs 2 items 8 chunk 8 : ...
    ```
    A one-way door.
  }];
  let options = [Option<"reuse", "reuse", "bool", "true",
                        "false: only views share bytes, for tests and comparisons">,
                 Option<"target", "target", "std::string", "\"cpu\"",
                        "the target whose commands need scratch memory: its name, such as cpu or cuda">];
  let dependentDialects = ["::lmc::plan_ir::PlanDialect"];
}

#endif
