#include "runtime/comm/NodeCommunicator.h"

#include "ground/plan/PlanFile.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace lmc {

using plan::DType;

// The number of bytes of a tensor that are processed at a time.
static constexpr uint64_t kScratchBytes = 16 << 20;

// Returns a pair of numbers that identifies the rank's group among all groups along the axis.
static std::pair<int, int> groupAlong(plan::Axis axis, int rank, int shardRanks, int expertRanks) {
  const int group = rank / shardRanks, position = rank % shardRanks;
  switch (axis) {
  case plan::Axis::Replicate:
    return {0, position};
  case plan::Axis::Shard:
    return {group, 0};
  case plan::Axis::Expert:
    return {group, position / expertRanks};
  case plan::Axis::ExpertShard:
    return {group, position % expertRanks};
  }
  return {};
}

AxisGroups axisGroups(plan::Axis axis, int rank, int ranks, int shardRanks, int ranksPerNode,
                      int expertRanks) {
  AxisGroups groups;
  for (int other = 0; other < ranks; ++other)
    if (groupAlong(axis, other, shardRanks, expertRanks) ==
        groupAlong(axis, rank, shardRanks, expertRanks))
      groups.all.push_back(other);
  std::set<int> nodes;
  for (int other : groups.all) {
    nodes.insert(other / ranksPerNode);
    if (other / ranksPerNode == rank / ranksPerNode)
      groups.onNode.push_back(other);
  }
  const size_t places = groups.onNode.size();
  // onNode and acrossNodes are used only if the group has ranks on several nodes, equally many (at
  // least 2) on each, and the ranks of each node are adjacent in `all`.
  bool even = places > 1 && nodes.size() > 1 && groups.all.size() == places * nodes.size();
  for (size_t i = 0; even && i < groups.all.size(); ++i)
    even = groups.all[i] / ranksPerNode == groups.all[i / places * places] / ranksPerNode;
  if (!even) {
    groups.onNode.clear();
    return groups;
  }
  const auto place =
      static_cast<size_t>(std::ranges::find(groups.onNode, rank) - groups.onNode.begin());
  for (size_t node = 0; node < nodes.size(); ++node)
    groups.acrossNodes.push_back(groups.all[node * places + place]);
  return groups;
}

NodeCommunicator::NodeCommunicator(std::unique_ptr<Communicator> node,
                                   std::unique_ptr<Communicator> across)
    : onNode(std::move(node)), acrossNodes(std::move(across)),
      places(static_cast<uint64_t>(onNode->size())),
      nodes(static_cast<uint64_t>(acrossNodes->size())) {}

Result<void> NodeCommunicator::allGather(const void *x, void *d, uint64_t bytes) {
  const uint64_t most = std::min(bytes, kScratchBytes / (places * nodes) + 1);
  scratch.resize(std::max(scratch.size(), nodes * (1 + places) * most));
  char *ofPlace = scratch.data();     // [nodes, count]
  char *all = ofPlace + nodes * most; // [places, nodes, count]
  for (uint64_t first = 0; first < bytes; first += most) {
    const uint64_t count = std::min(most, bytes - first);
    LMC_TRY(acrossNodes->allGather(static_cast<const char *>(x) + first, ofPlace, count));
    LMC_TRY(onNode->allGather(ofPlace, all, nodes * count));
    for (uint64_t place = 0; place < places; ++place)
      for (uint64_t node = 0; node < nodes; ++node)
        std::memcpy(static_cast<char *>(d) + (node * places + place) * bytes + first,
                    all + (place * nodes + node) * count, count);
  }
  return {};
}

Result<void> NodeCommunicator::reduceScatter(const void *x, void *d, uint64_t elements,
                                             DType dtype) {
  const uint64_t width = byteWidth(dtype);
  const uint64_t most = std::min(elements, kScratchBytes / (places * nodes * width) + 1);
  scratch.resize(std::max(scratch.size(), nodes * (1 + places) * most * width));
  char *sums = scratch.data();             // [nodes, count], onNode's sums for ranks in acrossNodes
  char *all = sums + nodes * most * width; // [places, nodes, count]
  for (uint64_t first = 0; first < elements; first += most) {
    const uint64_t count = std::min(most, elements - first);
    for (uint64_t place = 0; place < places; ++place)
      for (uint64_t node = 0; node < nodes; ++node)
        std::memcpy(all + (place * nodes + node) * count * width,
                    static_cast<const char *>(x) +
                        ((node * places + place) * elements + first) * width,
                    count * width);
    LMC_TRY(onNode->reduceScatter(all, sums, nodes * count, dtype));
    LMC_TRY(acrossNodes->reduceScatter(sums, static_cast<char *>(d) + first * width, count, dtype));
  }
  return {};
}

Result<void> NodeCommunicator::allReduce(void *d, uint64_t elements, DType dtype) {
  const uint64_t width = byteWidth(dtype);
  const uint64_t most = std::min((elements + places - 1) / places,
                                 kScratchBytes / (places * width) + 1); // elements that a rank sums
  scratch.resize(std::max(scratch.size(), (1 + places) * most * width));
  char *part = scratch.data();     // [count]
  char *all = part + most * width; // [places, count]
  for (uint64_t first = 0; first < elements; first += most * places) {
    const uint64_t valid = std::min(most * places, elements - first);
    const uint64_t count = (valid + places - 1) / places;
    char *at = static_cast<char *>(d) + first * width;
    std::memcpy(all, at, valid * width);
    std::memset(all + valid * width, 0, (count * places - valid) * width);
    LMC_TRY(onNode->reduceScatter(all, part, count, dtype));
    LMC_TRY(acrossNodes->allReduce(part, count, dtype));
    LMC_TRY(onNode->allGather(part, all, count * width));
    std::memcpy(at, all, valid * width);
  }
  return {};
}

Result<void> NodeCommunicator::broadcast(void *data, uint64_t bytes, int root) {
  const int place = root % onNode->size(), node = root / onNode->size();
  if (onNode->position() == place)
    LMC_TRY(acrossNodes->broadcast(data, bytes, node));
  return onNode->broadcast(data, bytes, place);
}

Result<void> NodeCommunicator::barrier() {
  LMC_TRY(onNode->barrier());
  LMC_TRY(acrossNodes->barrier());
  return onNode->barrier();
}

} // namespace lmc
