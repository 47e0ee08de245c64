// A group of ranks on several nodes, with several ranks on each. Data that every rank of a node
// needs crosses the link between nodes only once:
//
//   all-gather       between the nodes each rank gathers the pieces of the ranks that have its
//                    place on their nodes; then the ranks of a node give each other what they have
//   reduce-scatter   the ranks of a node add up what they have for each place; then the sums are
//                    added up between the nodes
//   all-reduce       the ranks of a node divide the tensor among them, and add up their parts as in
//                    a reduce-scatter
//
// So a sum is formed in the order of the positions within each node, and then in that of the nodes.
// Tensors pass in chunks, of which at most 32 MiB are copied at a time.
#pragma once

#include "runtime/comm/Communicator.h"

#include <memory>
#include <vector>

namespace lmc {

// The ranks of a group along an axis, by position, and the two groups of which it consists.
struct AxisGroups {
  std::vector<int> all;
  // The ranks of this rank's node, and those at its place on the other nodes. Both are empty if the
  // group is on one node, has one rank on each, or another number of them on some.
  std::vector<int> onNode, acrossNodes;
};

// Returns the groups of `rank` along an axis of a mesh of `ranks` ranks in groups of `shardRanks`,
// of which each `ranksPerNode` consecutive ones are on one node; see World.h.
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
  const uint64_t places, nodes; // places: ranks on a node
  std::vector<char> scratch;
};

} // namespace lmc
