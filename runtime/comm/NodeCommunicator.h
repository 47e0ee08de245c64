// The collectives of a group that has several ranks on each of several nodes. The place of a rank
// is its index among the group's ranks on the same node. Data that all ranks of a node need crosses
// the link between nodes only once:
//
//   all-gather       is an all-gather among ranks with equal places, then one on each node
//   reduce-scatter   is a reduce-scatter on each node, then one among ranks with equal places. The
//                    first adds the data of a node's ranks. The rank with place p receives those
//                    sums that are for the ranks with place p on all nodes.
//   all-reduce       is a reduce-scatter on each node, an all-reduce among ranks with equal places,
//                    and an all-gather on each node
//
// Tensors are processed in chunks, so that at most 32 MiB are copied at a time.
#pragma once

#include "runtime/comm/Communicator.h"

#include <memory>
#include <vector>

namespace lmc {

// The ranks of a group along an axis, by position.
struct AxisGroups {
  std::vector<int> all;
  // The ranks on this rank's node, and the ranks with this rank's place on all nodes. Both lists
  // are empty unless the group is on several nodes, with equally many ranks (at least 2) on each.
  std::vector<int> onNode, acrossNodes;
};

// Returns the groups of `rank` along an axis of a mesh of `ranks` ranks (World.h).
AxisGroups axisGroups(plan::Axis axis, int rank, int ranks, int shardRanks, int ranksPerNode,
                      int expertRanks = 1);

class NodeCommunicator final : public Communicator {
public:
  NodeCommunicator(std::unique_ptr<Communicator> onNode, std::unique_ptr<Communicator> acrossNodes);

  int position() const override {
    return acrossNodes->position() * onNode->size() + onNode->position();
  }
  int size() const override { return acrossNodes->size() * onNode->size(); }
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
