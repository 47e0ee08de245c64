#include "tools/lmc-run/check/MeasurePairs.h"

#include "runtime/comm/LocalWorld.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

using namespace lmc;

namespace {

TEST(MeasureGroup, AllRanksGetTheSameTimes) {
  std::vector<GroupSpeed> speeds(3);
  {
    std::vector<std::jthread> threads;
    for (std::unique_ptr<World> &world : makeLocalWorlds(3, 3))
      threads.emplace_back([&speeds, world = std::move(world)] {
        auto speed = measureGroup(world->all(), 0.05);
        ASSERT_TRUE(speed) << speed.error().message;
        speeds[static_cast<size_t>(world->rank())] = *speed;
      });
  }
  for (const GroupSpeed &speed : speeds) {
    EXPECT_GT(speed.latency, 0);
    EXPECT_GT(speed.bandwidth, 0);
    EXPECT_EQ(speed.latency, speeds[0].latency);
    EXPECT_EQ(speed.bandwidth, speeds[0].bandwidth);
    EXPECT_EQ(speed.sent, speeds[0].sent);
  }
}

// A group of four on a link with known numbers, of which all ranks do the same at the same time.
class TimedGroup final : public Communicator {
public:
  static constexpr double kLatency = 1e-2, kBandwidth = 1e8;
  int position() const override { return 0; }
  int size() const override { return 4; }
  Result<void> allGather(const void *x, void *d, uint64_t bytes) override {
    const double seconds = kLatency + double(bytes * 3) / kBandwidth;
    clock += seconds;
    for (uint64_t i = 0; i < 4; ++i)
      std::memcpy(static_cast<char *>(d) + i * bytes, x, bytes);
    sent += bytes * 3;
    return {};
  }
  Result<void> reduceScatter(const void *, void *, uint64_t, plan::DType) override { return {}; }
  Result<void> allReduce(void *, uint64_t, plan::DType) override { return {}; }
  Result<void> broadcast(void *, uint64_t, int) override { return {}; }
  Result<void> barrier() override { return {}; }
  uint64_t sent = 0;
  double clock = 0; // seconds
};

TEST(MeasureGroup, FindsLatencyAndBandwidthWithinItsTime) {
  TimedGroup group;
  auto speed = measureGroup(group, 0.5, [&] { return group.clock; });
  ASSERT_TRUE(speed);
  EXPECT_NEAR(speed->latency, TimedGroup::kLatency, 1e-4 * TimedGroup::kLatency);
  EXPECT_NEAR(speed->bandwidth, TimedGroup::kBandwidth, 1e-4 * TimedGroup::kBandwidth);
  EXPECT_EQ(speed->sent, group.sent);
  EXPECT_LT(group.clock, 1.0);
}

} // namespace
