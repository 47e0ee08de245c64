// dist-shard-state: declares the mesh of ranks, between which the state is divided.
//
//   module {...}   =>   module { dist.mesh @ranks(replicate = 1, shard = 1) ... }
#include "passes/distribute/Passes.h"

#include "dialects/dist/Dist.h"

#include "mlir/IR/BuiltinOps.h"

namespace lmc {
#define GEN_PASS_DEF_SHARDSTATEPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;

namespace {
struct ShardStatePass : lmc::impl::ShardStatePassBase<ShardStatePass> {
  using ShardStatePassBase::ShardStatePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (nodes < 1 || devicesPerNode < 1) {
      module.emitError("needs at least one node and one device per node");
      return signalPassFailure();
    }
    if (nodes * devicesPerNode > 1) {
      module.emitError("cannot divide state between ")
          << nodes * devicesPerNode
          << " ranks: this release compiles for one rank; use --nodes=1 --devices-per-node=1";
      return signalPassFailure();
    }
    OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
    lmc::dist::MeshOp::create(b, module.getLoc(), "ranks", hybrid ? nodes : int64_t(1),
                              hybrid ? devicesPerNode : nodes * devicesPerNode);
  }
};
} // namespace
