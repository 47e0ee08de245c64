// Phase 7: every value gets its bytes.

#ifndef LMC_PASSES_BUFFERS
#define LMC_PASSES_BUFFERS

include "mlir/Pass/PassBase.td"

def PlaceBuffersPass : Pass<"plan-place-buffers", "::mlir::ModuleOp"> {
  let summary = "places every tensor in an arena and turns ops into commands";
  let description = [{
    Variables get fixed places in `@state`. In each function, values become
    buffers: accumulators, stores to variables, row slices and reshapes share the
    bytes of what they alias, a kernel's result takes over an input that dies there
    when the kernel may write in place, and everything else is packed into
    `@workspace` by liveness (compiler/algorithms/Packing.h). The functions run
    one after the other, so `@workspace` is as large as the largest needs. Commands
    that need scratch memory on the target get it there too.

    The commands are then run beside the function, with symbols for values, by a
    checker that knows nothing of how places were chosen (CheckAliasing.h): a
    command that would read other bytes than its op is an error.

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
