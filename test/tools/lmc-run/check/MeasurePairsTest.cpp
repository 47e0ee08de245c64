#include "tools/lmc-run/check/MeasurePairs.h"

#include "runtime/comm/LocalWorld.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

using namespace lmc;

namespace {

TEST(Tournament, EveryoneMeetsEveryoneOnce) {
  for (int players = 1; players <= 33; ++players) {
    EXPECT_EQ(roundsOf(players), players == 1 ? 0 : players - 1 + players % 2);
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < roundsOf(players); ++round) {
      int idle = 0;
      for (int player = 0; player < players; ++player) {
        const std::optional<int> other = opponentOf(player, round, players);
        if (!other) {
          ++idle;
          continue;
        }
        ASSERT_NE(*other, player);
        ASSERT_GE(*other, 0);
        ASSERT_LT(*other, players);
        EXPECT_EQ(opponentOf(*other, round, players), player);
        EXPECT_TRUE(met.emplace(player, *other).second);
      }
      EXPECT_EQ(idle, players % 2);
    }
    EXPECT_EQ(met.size(), size_t(players) * size_t(players - 1));
  }
}

TEST(MeasurePairs, AllRanksKnowAllPairsOfANodeAndOfNodes) {
  constexpr int kNodes = 3, kOnNode = 2;
  std::vector<PairSpeeds> speeds(kNodes * kOnNode);
  {
    std::vector<std::jthread> threads;
    for (std::unique_ptr<World> &world : makeLocalWorlds(kNodes * kOnNode))
      threads.emplace_back([&speeds, world = std::move(world)] {
        auto measured = measurePairs(*world, kOnNode, 0.05);
        ASSERT_TRUE(measured) << measured.error().message;
        speeds[static_cast<size_t>(world->rank())] = *measured;
      });
  }
  std::set<std::pair<int, int>> onNode, acrossNodes;
  for (const PairSpeed &pair : speeds[0].onNode)
    onNode.emplace(pair.a, pair.b);
  for (const PairSpeed &pair : speeds[0].acrossNodes)
    acrossNodes.emplace(pair.a, pair.b);
  EXPECT_EQ(onNode, (std::set<std::pair<int, int>>{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(acrossNodes,
            (std::set<std::pair<int, int>>{{0, 2}, {0, 4}, {2, 4}, {1, 3}, {1, 5}, {3, 5}}));
  EXPECT_EQ(speeds[0].onNode.size() + speeds[0].acrossNodes.size(), 9u);
  for (const PairSpeeds &other : speeds) {
    EXPECT_EQ(other.sent, speeds[0].sent);
    ASSERT_EQ(other.acrossNodes.size(), 6u);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_GT(other.acrossNodes[i].latency, 0);
      EXPECT_EQ(other.acrossNodes[i].latency, speeds[0].acrossNodes[i].latency);
      EXPECT_EQ(other.acrossNodes[i].bandwidth, speeds[0].acrossNodes[i].bandwidth);
    }
  }
}

// A world in which each long exchange takes 25 ms, and the first ones of ranks 0 and 2 225 ms.
class LateWorld final : public World {
public:
  LateWorld(World &world, int times) : world(world), times(times) {}
  int rank() const override { return world.rank(); }
  int size() const override { return world.size(); }
  Communicator &all() override { return world.all(); }
  Communicator &background() override { return world.background(); }
  Result<void> divide(int, int, int) override { return {}; }
  Communicator &along(plan::Axis axis) override { return world.along(axis); }
  Progress &progress() override { return world.progress(); }
  Result<void> exchange(int other, const void *x, void *d, uint64_t bytes) override {
    const bool isLong = bytes > 1000, isLate = isLong && rank() == 0 && other == 2 && times-- > 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(isLate ? 225 : isLong ? 25 : 0));
    return world.exchange(other, x, d, bytes);
  }

private:
  World &world;
  int times;
};

// A meeting has one long exchange if that takes so long.
TEST(MeasurePairs, APairThatLooksSlowIsMeasuredOnceMore) {
  for (int times : {2, 100}) {
    double seconds = 0;
    {
      std::vector<std::jthread> threads;
      for (std::unique_ptr<World> &local : makeLocalWorlds(3))
        threads.emplace_back([&seconds, times, local = std::move(local)] {
          LateWorld world(*local, times);
          auto measured = measurePairs(world, 1, 1);
          ASSERT_TRUE(measured) << measured.error().message;
          for (const PairSpeed &pair : measured->acrossNodes)
            if (world.rank() == 0 && pair.a == 0 && pair.b == 2)
              seconds = pair.seconds();
        });
    }
    // 25 ms for 16 KiB are 1.6 s for 1 MiB, and 225 ms are 14 s.
    EXPECT_EQ(seconds > 5, times == 100) << seconds;
  }
}

} // namespace
