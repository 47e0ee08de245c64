#include "runtime/comm/MeasureGroup.h"

#include "runtime/comm/LocalWorld.h"

#include <gtest/gtest.h>

#include <thread>

using namespace lmc;

namespace {

TEST(MeasureGroup, AllRanksGetTheSameTimes) {
  std::vector<GroupSpeed> speeds(3);
  {
    std::vector<std::jthread> threads;
    for (std::unique_ptr<World> &world : makeLocalWorlds(3, 3))
      threads.emplace_back([&speeds, world = std::move(world)] {
        auto speed = measureGroup(world->all());
        ASSERT_TRUE(speed) << speed.error().message;
        speeds[static_cast<size_t>(world->rank())] = *speed;
      });
  }
  for (const GroupSpeed &speed : speeds) {
    ASSERT_EQ(speed.secondsOfRank.size(), 3u);
    EXPECT_EQ(speed.secondsOfRank, speeds[0].secondsOfRank);
    EXPECT_EQ(speed.latency(), speeds[0].latency());
    EXPECT_GT(speed.latency(), 0);
    EXPECT_EQ(speed.bandwidth(), speeds[0].bandwidth());
    EXPECT_LT(speed.latency(), speed.allGathers.back().seconds);
  }
}

TEST(MeasureGroup, BandwidthCountsWhatOneRankReceives) {
  // 3 other ranks send 1000 bytes each, in 2 s.
  const GroupSpeed speed = {{{8, 0.5}, {1000, 2}}, {1, 1, 1, 1}};
  EXPECT_EQ(speed.latency(), 0.5);
  EXPECT_EQ(speed.bandwidth(), 1500);
}

TEST(MeasureGroup, ARankThatTakesTwiceTheUsualTimeIsSlow) {
  EXPECT_EQ((GroupSpeed{{}, {1, 1.1, 2.5, 0.9}}.slowRanks()), std::vector<int>{2});
  EXPECT_TRUE((GroupSpeed{{}, {1, 1.1, 1.5, 0.9}}.slowRanks()).empty());
}

} // namespace
