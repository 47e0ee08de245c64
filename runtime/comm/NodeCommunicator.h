// A group of ranks on several nodes, with several ranks on each. A rank's place is its number among
// the group's ranks on its node. Data that all ranks of a node need crosses the link between nodes
// only once:
//
//   all-gather       Each rank gathers the pieces of the ranks with its place on all nodes. Then
//                    the ranks of each node exchange these pieces.
//   reduce-scatter   The ranks of each node add up: the rank with place p gets the sums for the
//                    ranks with place p on all nodes. Then these add up over the nodes.
//   all-reduce       A reduce-scatter on each node, an all-reduce of each rank's part of the tensor
//                    over the nodes, and an all-gather on each node.
//
// So a sum is formed in the order of the positions within each node, and then in that of the nodes.
// Tensors are processed in chunks, so that at most 32 MiB are copied at a time.
#pragma once

#include "runtime/comm/Communicator.h"

#include <memory>
#include <vector>

namespace lmc {

// The ranks of a group along an axis, by position, and the two smaller groups that its
// NodeCommunicator uses.
struct AxisGroups {
  std::vector<int> all;
  // The ranks of the group on this rank's node, and those with its place on all nodes. Both are
  // empty unless the group is on several nodes, with the same number of ranks, at least 2, on each.
  std::vector<int> onNode, acrossNodes;
};

// Returns the groups of `rank` along an axis of a mesh of `ranks` ranks. Each node has
// `ranksPerNode` consecutive ranks. World.h explains the axes, `shardRanks` and `expertRanks`.
AxisGroups axisGroups(plan::Axis axis, int rank, int ranks, int shardRanks, int ranksPerNode,
                      int expertRanks = 1);

class NodeCommunicator final : public Communicator {
public:
  NodeCommunicator(std::unique_ptr<Communicator> onNode, std::unique_ptr<Communicator> acrossNodes);

  int position() const override;
  int size() const override;
  Result<void> allGather(const void *x, void *d, uint64_t bytes) override;
  Result<void> reduceScatter(const void *x, void *d, uint64_t elements, plan::DType dtype) override;
  Result<void> allReduce(void *d, uint64_t elements, plan::DType dtype) override;
  Result<void> broadcast(void *data, uint64_t bytes, int root) override;
  Result<void> barrier() override;

private:
  const std::unique_ptr<Communicator> onNode, acrossNodes;
  const uint64_t places, nodes; // places: the number of ranks on each node
  std::vector<char> scratch;
};

} // namespace lmc
