// Phase 7: every value gets its place in memory.

#ifndef LMC_PASSES_BUFFERS
#define LMC_PASSES_BUFFERS

include "mlir/Pass/PassBase.td"

def AssignBuffersPass : Pass<"plan-assign-buffers", "::mlir::ModuleOp"> {
  let summary = "decides which tensors share bytes, and how long each buffer lives";
  let description = [{
    Each value of a function becomes a view of a buffer. Accumulators, values stored to
    variables, slices of rows and reshapes share the bytes of the values that they alias. A
    vector of which every part is stored to a variable takes the bytes of these variables, if
    they are neighbours in a storage in the order of the parts. A
    kernel's result is written over an input that no later op reads, if the kernel may write
    in place. Where sharing would let an op read wrong bytes, a copy before the op is
    recorded. A command that needs scratch memory on the target gets a buffer for it. The
    offsets of the buffers are decided later, by `plan-pack-arenas`.

    ```mlir
    func.func @f() {
      %x = lm.load @x : tensor<64xf32>
      %y = kern.launch @twice(%x) : (tensor<64xf32>) -> tensor<64xf32>
      lm.store %y, @x : tensor<64xf32>
      return
    }
    ```
    becomes
    ```mlir
    func.func @f() attributes {plan.buffers = [#plan.buffer<bytes = 256, last = 1, variable = "x">]} {
      %x = lm.load @x : tensor<64xf32> {plan.views = [#plan.view<buffer = 0>]}
      %y = kern.launch @twice(%x) : ... {plan.views = [#plan.view<buffer = 0>]}
      lm.store %y, @x : tensor<64xf32>
      return
    }
    ```
  }];
  let options = [Option<"reuse", "reuse", "bool", "true",
                        "false: only views share bytes, for tests and comparisons">,
                 Option<"target", "target", "std::string", "\"cpu\"",
                        "the target whose commands need scratch memory: its name, such as cpu or cuda">,
                 Option<"gemmWorkspace", "gemm-workspace", "uint64_t", "32 << 20",
                        "the most scratch memory of a matrix product, in bytes">,
                 Option<"attach", "attach", "bool", "true",
                        "false: only the passes that follow in the same pass manager see the result">];
  let dependentDialects = ["::lmc::plan_ir::PlanDialect"];
}

def PackArenasPass : Pass<"plan-pack-arenas", "::mlir::ModuleOp"> {
  let summary = "gives every variable and every buffer its offset in an arena";
  let description = [{
    Variables lie one after the other in `@state`; members of a storage lie inside the
    storage. The buffers of a function are packed into `@workspace` by their live ranges
    (compiler/algorithms/Packing.h). The functions run one after the other, so `@workspace`
    is as large as the largest of them needs.

    ```mlir
    func.func @f() attributes {plan.buffers = [#plan.buffer<bytes = 256, first = 1, last = 2>,
                                               #plan.buffer<bytes = 256, first = 2, last = 3>]}
    ```
    becomes
    ```mlir
    plan.arena @state bytes 0 alignment 64 lower_bound 0
    plan.arena @workspace bytes 512 alignment 64 lower_bound 512
    func.func @f() attributes {plan.buffers = [...], plan.offsets = array<i64: 0, 256>,
                               plan.peak_bytes = 512 : i64}
    ```
  }];
  let options = [Option<"reuse", "reuse", "bool", "true",
                        "false: no two buffers share bytes, for tests and comparisons">,
                 Option<"alignment", "alignment", "uint64_t", "64",
                        "what divides the offset of each buffer in @workspace: a power of two, at least 64">];
  let dependentDialects = ["::lmc::plan_ir::PlanDialect"];
}

def EmitCommandsPass : Pass<"plan-emit-commands", "::mlir::ModuleOp"> {
  let summary = "turns ops on tensors into commands on slices at fixed offsets";
  let description = [{
    Each function gets a `plan.function` with its commands in the same order. Each variable
    becomes a `plan.variable`. If an argument of a kernel is not dense, the kernel is
    launched as a variant that is compiled for the pitches of its arguments. The functions on
    tensors move into a module of their own, with their variables and kernels, because
    `plan-check-aliasing` compares the commands with them.

    ```mlir
    func.func @f() attributes {...} {
      %y = kern.launch @mlp(%g, %u) : ...
    ```
    becomes
    ```mlir
    plan.function @f peak 8192 {
      %0 = plan.slice @workspace[4096] activations "layers.0/mlp" live[0, 3] : <tensor<8x16xf32>>
      plan.launch @mlp items 8 chunk 8 (
        in  %g : tensor<8x16xf32>
        in  %u : tensor<8x16xf32>
        out %0 : tensor<8x16xf32>
      )
    }
    module @tensors {
      func.func @f() attributes {...} {
        %y = kern.launch @mlp(%g, %u) : ...
    ```
  }];
  let options = [Option<"keepTensors", "keep-tensors", "bool", "true",
                        "false: the functions on tensors are erased">];
  let dependentDialects = ["::lmc::plan_ir::PlanDialect"];
}

def CheckAliasingPass : Pass<"plan-check-aliasing", "::mlir::ModuleOp"> {
  let summary = "proves that the commands compute what the functions on tensors compute";
  let description = [{
    A checker that does not know how places were chosen (CheckAliasing.h) runs the commands
    and the ops of each function side by side, with symbols for values. A command that would
    read other bytes than its op is an error. After the check the functions on tensors are
    erased.

    ```mlir
    plan.function @f peak 8192 { ... }
    module @tensors { func.func @f() { ... } }
    ```
    becomes
    ```mlir
    plan.function @f peak 8192 { ... }
    ```
    No later pass can go back to tensors.
  }];
}

#endif
