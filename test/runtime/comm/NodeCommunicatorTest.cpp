// Groups with several ranks on each of several nodes give the sums that their order says.
#include "runtime/comm/NodeCommunicator.h"
#include "runtime/comm/GlooWorld.h"
#include "runtime/comm/LocalWorld.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

using namespace lmc;
using plan::Axis;

namespace {

using Ranks = std::vector<int>;

TEST(NodeCommunicator, GroupsFollowFromTheMesh) {
  // 2 nodes of 4 ranks. All 8 divide the state: 4 places on 2 nodes.
  AxisGroups groups = axisGroups(Axis::Shard, 6, 8, 8, 4);
  EXPECT_EQ(groups.all, (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(groups.onNode, (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(groups.acrossNodes, (Ranks{2, 6}));
  EXPECT_EQ(axisGroups(Axis::Replicate, 6, 8, 8, 4).all, (Ranks{6}));
  // The 4 of a node divide it: the copies are on one rank of each node.
  groups = axisGroups(Axis::Replicate, 6, 8, 4, 4);
  EXPECT_EQ(groups.all, (Ranks{2, 6}));
  EXPECT_TRUE(groups.onNode.empty());
  EXPECT_TRUE(axisGroups(Axis::Shard, 6, 8, 4, 4).onNode.empty());
  // 2 of a node divide it: 2 copies on each node.
  groups = axisGroups(Axis::Replicate, 6, 8, 2, 4);
  EXPECT_EQ(groups.all, (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(groups.onNode, (Ranks{4, 6}));
  EXPECT_EQ(groups.acrossNodes, (Ranks{2, 6}));
  // Groups of 3 on nodes of 2: a node has 1 or 2 of them.
  EXPECT_TRUE(axisGroups(Axis::Shard, 1, 6, 3, 2).onNode.empty());
}

// Values of which no two orders of addition give the same sum.
float valueOf(int rank, uint64_t i) {
  return float(rank + 1) * 1.1f +
         float((i * 2654435761u + uint64_t(rank) * 40503u) % 1000003) * 1e-3f;
}

// ((x_0 + x_1) + (x_2 + x_3)) + ... for `places` ranks on each node.
float sumOf(const Ranks &members, size_t places, uint64_t i) {
  float total = 0;
  for (size_t node = 0; node < members.size(); node += places) {
    float ofNode = valueOf(members[node], i);
    for (size_t place = 1; place < places; ++place)
      ofNode += valueOf(members[node + place], i);
    total = node == 0 ? ofNode : total + ofNode;
  }
  return total;
}

void check(World &world, const Ranks &members, size_t places, uint64_t elements) {
  Communicator &group = world.along(Axis::Shard);
  const auto here = size_t(group.position());
  ASSERT_EQ(group.size(), int(members.size()));
  ASSERT_EQ(members[here], world.rank());
  const uint64_t all = elements * members.size();
  std::vector<float> x(all), d(elements), gathered(all);
  for (uint64_t i = 0; i < all; ++i)
    x[i] = valueOf(world.rank(), i);
  ASSERT_TRUE(group.reduceScatter(x.data(), d.data(), elements, plan::DType::F32));
  for (uint64_t i = 0; i < elements; ++i)
    ASSERT_EQ(d[i], sumOf(members, places, here * elements + i)) << i;
  ASSERT_TRUE(group.allGather(d.data(), gathered.data(), elements * sizeof(float)));
  const uint64_t uneven = all == 0 ? 0 : all - 1;
  ASSERT_TRUE(group.allReduce(x.data(), uneven, plan::DType::F32));
  for (uint64_t i = 0; i < uneven; ++i) {
    ASSERT_EQ(gathered[i], sumOf(members, places, i)) << i;
    ASSERT_EQ(x[i], gathered[i]) << i;
  }
  // In place: this rank's part is in the tensor already.
  std::vector<float> again(all);
  std::copy(d.begin(), d.end(), again.begin() + std::ptrdiff_t(here * elements));
  ASSERT_TRUE(
      group.allGather(again.data() + here * elements, again.data(), elements * sizeof(float)));
  EXPECT_EQ(again, gathered);
  for (int root = 0; root < group.size(); ++root) {
    int data = group.position() == root ? 100 + root : 0;
    ASSERT_TRUE(group.broadcast(&data, sizeof data, root));
    EXPECT_EQ(data, 100 + root);
  }
  ASSERT_TRUE(group.barrier());
}

void checkMeshes(World &world) {
  // A division of 2 nodes of 2, then one node of 4, whose sums have another order.
  ASSERT_TRUE(world.divide(4, 2));
  for (uint64_t elements : {0, 1, 1000})
    check(world, {0, 1, 2, 3}, 2, elements);
  ASSERT_TRUE(world.divide(4, 4));
  check(world, {0, 1, 2, 3}, 4, 1000);
}

TEST(NodeCommunicator, SumsNodesAfterTheirRanksAmongThreads) {
  std::vector<std::jthread> threads;
  for (std::unique_ptr<World> &world : makeLocalWorlds(4))
    threads.emplace_back([world = std::move(world)] { checkMeshes(*world); });
}

TEST(NodeCommunicator, SumsNodesAfterTheirRanksOverTcp) {
  const Result<int> port = freePort();
  ASSERT_TRUE(port);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      RendezvousOptions options;
      options.rank = rank;
      options.size = 4;
      options.address = "127.0.0.1";
      options.port = *port;
      auto world = joinGlooWorld(options);
      ASSERT_TRUE(world) << world.error().message;
      checkMeshes(**world);
    });
}

// Three nodes of two ranks, and a tensor that passes in several chunks.
TEST(NodeCommunicator, PassesLargeTensorsInChunks) {
  std::vector<std::jthread> threads;
  for (std::unique_ptr<World> &world : makeLocalWorlds(6))
    threads.emplace_back([world = std::move(world)] {
      ASSERT_TRUE(world->divide(6, 2));
      check(*world, {0, 1, 2, 3, 4, 5}, 2, (1 << 20) + 7);
    });
}

} // namespace
