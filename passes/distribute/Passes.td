// The passes that divide state and work between the ranks of a job.

#ifndef LMC_PASSES_DISTRIBUTE
#define LMC_PASSES_DISTRIBUTE

include "mlir/Pass/PassBase.td"

def ParallelExpertsPass : Pass<"dist-parallel-experts", "::mlir::ModuleOp"> {
  let summary = "divides the experts of layers between neighbouring ranks";
  let description = [{
    Declares the mesh `dist.mesh @ranks(replicate = R, shard = S, experts = N)`. Of the E experts
    of a layer, the rank with position i along the axis `expert` has those from i E / N on: the
    parameters of experts, and what reads them, get an N-th of their rows and the attribute
    `groups`.

    The N ranks gather their tokens, and the choices and weights of their routers. Each then
    computes those choices of all N ranks that are of its own experts, and they add up the sums:

    ```mlir
    %w, %e, %c, %m = lm.route %logits : ... -> (tensor<Txkxf32>, tensor<Txkxi32>, ...)
    %o, %r, %p = lm.sort_rows %e : (tensor<Txkxi32>) -> ...
    %x = lm.take_rows %h, %r, %p : (tensor<Txnxbf16>, ...) -> tensor<T*k x n xbf16>
    %y = lm.expert_linear %x, %weight, %o : ...
    %s = lm.combine_rows %y, %w, %r, %p : ... -> tensor<Txnxbf16>
    ```
    becomes, with N = 2,
    ```mlir
    %h2 = dist.all_gather %h over @ranks expert : (tensor<Txnxbf16>) -> tensor<2T x n xbf16>
    %w2 = dist.all_gather %w over @ranks expert : ...
    %e2 = dist.all_gather %e over @ranks expert : ...
    %o, %r, %p = lm.sort_rows %e2 of %rank {groups = 2} : (tensor<2T x k xi32>) -> ...
    %x = lm.take_rows %h2, %r, %p : ...
    %y = lm.expert_linear %x, %half_of_weight, %o : ...
    %own = lm.combine_rows %y, %w2, %r, %p : ... -> tensor<2T x n xbf16>
    %s = dist.reduce_scatter %own over @ranks expert : ... -> tensor<Txnxbf16>
    ```
    Every size is known before the run, whatever the routers choose: the tokens of all N ranks may
    choose the same experts, so each rank must be able to get all of them, which is what
    an all-gather sends. A rank computes at most N T min(k, E / N) choices. No token is
    dropped, and the host is not asked. On average it computes T k of them: `lm.swiglu` of the
    halves of their rows becomes `lm.expert_swiglu`, which leaves out the rows without a choice.

    With `capacity` = c, they are computed in windows of c T k rows: each op between the sort and
    the sum is cloned for each window, `lm.sort_rows` with the window's first row, and the windows'
    sums are added up. Nearly always, the first window has all rows. `lm.late_rows` gets the offsets
    of all windows, and counts the rows of the others.

    Must run before `lm-autodiff`: each of the two collectives is the gradient of the other.
  }];
  let options = [
    Option<"replicate", "replicate", "int64_t", "1", "ranks that have the same piece">,
    Option<"shard", "shard", "int64_t", "1", "ranks that divide the state between them">,
    Option<"experts", "experts", "int64_t", "1",
           "neighbours among these that have the experts of a layer between them">,
    Option<"capacity", "capacity", "double", "0",
           "rows that are computed at a time, in multiples of the choices of a rank's own tokens; "
           "0: all at once">
  ];
  let dependentDialects = ["::lmc::dist::DistDialect", "::lmc::lm::LmDialect",
                           "::mlir::func::FuncDialect"];
}

def ShardStatePass : Pass<"dist-shard-state", "::mlir::ModuleOp"> {
  let summary = "divides the parameters between ranks and sums gradients over ranks";
  let description = [{
    Declares the mesh `dist.mesh @ranks(replicate = R, shard = S)` and forms units. A unit
    is all matrices of one layer, or one matrix outside of layers, or all vectors of the
    model (norms and biases). Matrices that weight decay treats differently, or of which
    the optimizer takes only some, are units of their own, and so are the biases of routers. The tensors of a unit lie one
    after the other in one vector, which the S ranks along the axis `shard` divide evenly.
    Each piece is a whole number of moment blocks (256 elements); the vector is padded with
    zeros where that is needed.

    The experts that `dist-parallel-experts` has divided between N ranks are units too. The vector
    of such a unit has N equal parts, of the experts of one position along the axis `expert` each,
    and the S / N ranks along `expert_shard` divide one: they gather and sum it between them.

    `stage`, the stage of ZeRO, says what is divided:

    * `optimizer` (ZeRO-1) and `gradients` (ZeRO-2): each rank keeps its piece of the
      parameters, of the reduced gradients and, because lm-insert-optimizer runs later, of
      the optimizer state. The functions read whole weights, from compute copies.
    * `weights` (ZeRO-3): the compute copies of matrices are divided too. The ranks' pieces
      are gathered before the first use in each function; `dist-regather` may gather them
      again for later uses.
    * `none` (DDP): nothing. Gradients are summed over all ranks.

    Where the functions only cast the weights of a unit to f8E4M3FN (`lm.quantize`,
    `lm.quantize_tiles`), ranks exchange codes: `@unit.N.codes` has a rank's piece, or `@unit.N.whole`
    all of them. `@unit.N.scales` has the scale of each tensor, or `@w.scales` those of the tiles of a
    tensor `@w`. `dist-sync-optimizer` casts the pieces.

    With `reduce=each`, each micro-step sums its gradients over ranks and only the sums are
    kept: a reduce-scatter along `shard` if that has several ranks, then an all-reduce along
    `replicate`. With `reduce=last`, the gradients of a step's micro-steps are added up first
    (see `dist-reduce-gradients`).

    `payload` is the dtype of the summed vectors, but for what is passed back to the biases of
    routers, which are counts. Before a unit is rounded to f16, the ranks
    gather the largest absolute value of each, one number a rank, and all scale by the same
    power of two (`lm.scaled_cast`).

    ```mlir
    lm.variable @w parameter : tensor<4x256xf32> init ones
    func.func @micro() {
      %w = lm.load @w : tensor<4x256xf32>
      ...
      lm.accumulate %dw, @w.grad : tensor<4x256xf32>
    ```
    becomes, with two ranks and `stage=weights`,
    ```mlir
    lm.variable @unit.0 parameter : tensor<2x256xf32> init none
        {shards = 2, sharded = [#lm.sharded<"w", tensor<4x256xf32>, offset = 0, init = ones>]}
    func.func @micro() {
      %p = lm.load @unit.0 : tensor<2x256xf32>
      %w = dist.all_gather %p over @ranks shard : (tensor<2x256xf32>) -> tensor<4x256xf32>
      ...
      %g = dist.reduce_scatter %dw over @ranks shard : (tensor<4x256xf32>) -> tensor<2x256xf32>
      lm.accumulate %g, @unit.0.grad : tensor<2x256xf32>
    ```
    Must run after `lm-autodiff` and before `lm-accumulate-gradients`.
  }];
  let options = [
    Option<"replicate", "replicate", "int64_t", "1", "ranks that have the same piece">,
    Option<"shard", "shard", "int64_t", "1", "ranks that divide the state between them">,
    Option<"stage", "stage", "std::string", "\"optimizer\"",
           "what is divided: none, optimizer, gradients or weights">,
    Option<"reduce", "reduce", "std::string", "\"each\"",
           "the micro-steps whose gradients are summed over ranks: each or last">,
    Option<"optimizer", "optimizer", "std::string", "\"adamw\"",
           "the optimizer, which decides what may share a unit: an op of lm">,
    Option<"payload", "payload", "std::string", "\"f32\"",
           "the dtype in which gradients travel: f32 (f64 for models in f64), bf16 or f16">
  ];
  let dependentDialects = ["::lmc::dist::DistDialect", "::lmc::lm::LmDialect",
                           "::mlir::tensor::TensorDialect"];
  let statistics = [Statistic<"numUnits", "units", "units of state">];
}

def ReduceGradientsPass : Pass<"dist-reduce-gradients", "::mlir::ModuleOp"> {
  let summary = "sums the accumulated gradients over ranks in the last micro-step";
  let description = [{
    For a module that `dist-shard-state{reduce=last}` left: in the function of the last
    micro-step, each unit whose gradients are complete is summed over ranks, and this rank's
    piece of the sum is stored for the optimizer.

    Must run after `lm-accumulate-gradients`.
  }];
  let options = [
    Option<"payload", "payload", "std::string", "\"f32\"",
           "the dtype in which gradients travel: f32, bf16 or f16">
  ];
  let dependentDialects = ["::lmc::dist::DistDialect", "::lmc::lm::LmDialect",
                           "::mlir::tensor::TensorDialect"];
}

def SyncOptimizerPass : Pass<"dist-sync-optimizer", "::mlir::ModuleOp"> {
  let summary = "joins what the ranks compute apart: norms, losses and new weights";
  let description = [{
    * A norm over the ranks' pieces becomes the norm of the vector of the ranks' norms.
    * `run.loss`, `run.eval_loss` and `run.router` are summed over all ranks.
    * After the optimizer's steps, the new weights are gathered into the whole compute
      copies. The function `@refresh` does the same from the parameters; it runs after the
      parameters were set from outside (at the start, and after a checkpoint was loaded).
    * Both cast the pieces of which `dist-shard-state` made ranks exchange codes. If a tensor has one
      scale, each rank finds the largest values in its pieces, and all ranks gather these, for all
      units at once. If it has scales of tiles, ranks gather the scale that each 128 elements of a row
      would have, a power of two in bf16; the largest of 128 rows is that of a tile.

    Must run after `lm-flatten-state`.
  }];
  let dependentDialects = ["::lmc::dist::DistDialect", "::lmc::lm::LmDialect",
                           "::mlir::func::FuncDialect", "::mlir::tensor::TensorDialect"];
}

def ExpandMuonPass : Pass<"dist-expand-muon", "::mlir::ModuleOp"> {
  let summary = "replaces lm.muon by its parts, and gathers matrices that ranks divide";
  let description = [{
    ```mlir
    %q, %n, %u, %s = lm.muon %p, %g, %m norm %norm lr %lr momentum %mu eps %eps ...
    ```
    becomes
    ```mlir
    %n, %d = lm.muon_direction %g, %m norm %norm momentum %mu clip_grad %clip
    %o = lm.orthogonalize %d rows 64 eps %eps
    %w = lm.scale_matrices %o {matrices = [...], ...}
    %q, %u, %s = lm.muon_update %p, %w norm %norm lr %lr ...
    ```
    Matrices of one shape that lie next to each other are one stack of `lm.orthogonalize`.
    Where the cost model finds it faster, the matrices of several `lm.muon` are copied to one stack.

    Where ranks divide the parameter, each has a piece of the direction. All gather it, and
    each keeps its rows (`lm.own_rows`) of what `lm.scale_matrices` makes. In between, either
    all orthogonalize the same matrices, or each its own and all gather the results:
    ```mlir
    %stack = ...                                 // n matrices of one shape
    %own = lm.own_rows %stack of %rank           // n / ranks of them
    %o = lm.orthogonalize %own rows 64 eps %eps
    %all = dist.all_gather %o over @ranks shard
    ```
    As many steps are taken together as is the fastest, and as have directions of at most
    1 GiB.
  }];
  let options = [
    Option<"owners", "owners", "std::string", "\"auto\"",
           "whether each matrix is orthogonalized by one rank: yes, no, or auto, which without "
           "a cost model is no">
  ];
  let dependentDialects = ["::lmc::dist::DistDialect", "::lmc::lm::LmDialect",
                           "::mlir::func::FuncDialect", "::mlir::tensor::TensorDialect"];
}

def CheckReductionsPass : Pass<"dist-check-reductions", "::mlir::ModuleOp"> {
  let summary = "reports values of one rank that count as if they were those of all ranks";
  let description = [{
    Changes nothing. An error is reported for

    * a gradient that the optimizer reads, if what the last micro-step stores to it is not summed
      over every axis of the mesh: the contribution of this micro-step, or, where earlier
      contributions are added to it, one of theirs; and a gradient to which it stores nothing;
    * such a contribution that is summed over an axis more than once: in one micro-step, or in an
      earlier one and then again with those of the last;
    * `run.loss` of a step and `run.eval_loss` that are not summed over every axis, or over one
      more than once;
    * a norm of a rank's piece that is read as if it were the norm of all pieces;
    * a gradient that travelled in f16, if its scale does not come from the maxima of all ranks.

    Unfinished results of async collectives need no pass: the verifiers of the ops of `dist` find
    who reads one. Must run after `dist-sync-optimizer`.
  }];
}

def RegatherPass : Pass<"dist-regather", "::mlir::ModuleOp"> {
  let summary = "gathers divided weights again for each use";
  let description = [{
    A gathered weight takes memory from its all-gather to its last use. This pass clones the
    all-gather for each later op or call that uses the weight, so that the weight need not
    stay. Layers in the module attribute `dist.kept_weights` (`array<i64: 2, 3>`) keep their
    weights from the forward to the backward pass; without the attribute, the first `keep`
    layers do. Must run after `lm-apply-recompute`, which finds weights by their values.
  }];
  let options = [
    Option<"keep", "keep", "int64_t", "0", "the number of layers that keep their weights">
  ];
  let dependentDialects = ["::lmc::dist::DistDialect", "::mlir::tensor::TensorDialect"];
}

def OverlapPass : Pass<"dist-overlap", "::mlir::ModuleOp"> {
  let summary = "lets collectives run at the same time as ops that do not need their results";
  let description = [{
    * An all-gather of weights starts before the ops that use the weights gathered before it, and
      ends where its own weights are used first.
    * The sum of gradients over ranks starts where the gradients are complete, and ends where the
      next sum has started. What adds the sum to the gradients of earlier micro-steps moves there too.
    * What ranks exchange along `expert` starts where it stands, and ends where its result is used
      first.
    * Collectives with nothing to compute between start and end stay as they are, and so do those
      of norms, losses and new weights.

    `gathers` and `reductions` say how many all-gathers (sums) may have started and not ended;
    collectives between which nothing is computed count as one. Each takes memory: the whole
    weights, or the gradients of a rank's own tokens. All ranks run the same program, so the order
    of collectives is the same on all of them. Must run after `kern-inline-layers`.

    ```mlir
    %w0 = dist.all_gather %p0 over @ranks shard : (tensor<2xf32>) -> tensor<4xf32>
    %y = kern.launch @f(%x, %w0) : ...
    %w1 = dist.all_gather %p1 over @ranks shard : (tensor<2xf32>) -> tensor<4xf32>
    %z = kern.launch @f(%y, %w1) : ...
    ```
    becomes
    ```mlir
    %w0 = dist.all_gather %p0 over @ranks shard : (tensor<2xf32>) -> tensor<4xf32>
    %s1 = dist.all_gather %p1 over @ranks shard : (tensor<2xf32>) -> tensor<4xf32> {async}
    %y = kern.launch @f(%x, %w0) : ...
    %w1 = dist.wait %s1 of %p1 : (tensor<4xf32>, tensor<2xf32>) -> tensor<4xf32>
    %z = kern.launch @f(%y, %w1) : ...
    ```
  }];
  let options = [
    Option<"gathers", "gathers", "int64_t", "1",
           "the distance from an all-gather to where it starts; 0: no overlap, also none of what "
           "ranks exchange along `expert`">,
    Option<"reductions", "reductions", "int64_t", "1",
           "the distance from a sum of gradients to where it ends; 0: no overlap">
  ];
  let statistics = [Statistic<"numAsync", "async", "collectives that run at the same time as ops">];
  let dependentDialects = ["::lmc::dist::DistDialect"];
}

#endif
