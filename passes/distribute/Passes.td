// The passes of phase 3: they divide state and work between the ranks.

#ifndef LMC_PASSES_DISTRIBUTE
#define LMC_PASSES_DISTRIBUTE

include "mlir/Pass/PassBase.td"

def ShardStatePass : Pass<"dist-shard-state", "::mlir::ModuleOp"> {
  let summary = "declares the mesh of ranks and divides the state between them";
  let description = [{
    Adds `dist.mesh @ranks(replicate = R, shard = S)`. ZeRO needs one axis of all ranks;
    HYBRID_SHARD needs S ranks per node times R nodes. With one rank there is nothing to
    divide. More than one rank is an error in this release.
  }];
  let options = [
    Option<"nodes", "nodes", "int64_t", "1", "nodes of the job">,
    Option<"devicesPerNode", "devices-per-node", "int64_t", "1", "ranks on each node">,
    Option<"hybrid", "hybrid", "bool", "false", "shard inside a node, replicate across nodes">
  ];
  let dependentDialects = ["::lmc::dist::DistDialect"];
}

#endif
