#include "runtime/comm/SlowRank.h"

#include <gtest/gtest.h>

#include <thread>

using namespace lmc;

namespace {

using Busy = std::vector<double>;

std::vector<Progress::State> states(const Busy &busy, uint64_t windows = 1) {
  std::vector<Progress::State> all;
  for (double seconds : busy) {
    all.emplace_back().busySeconds = seconds;
    all.back().windows = windows;
  }
  return all;
}

using Ranks = std::vector<int>;

TEST(SlowRanks, ThoseThatTakeLongerThanIsUsual) {
  const auto slow = findSlowRanks(states({1.0, 1.05, 0.95, 1.8}));
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->ranks, Ranks{3});
  EXPECT_EQ(slow->seconds, 1.8);
  EXPECT_EQ(slow->others, 1.0);
  EXPECT_TRUE(findSlowRanks(states({1.4, 1.0})));
}

TEST(SlowRanks, AllRanksOfASlowNode) {
  const auto slow = findSlowRanks(states({2.0, 2.2, 2.1, 1.9, 1.0, 1.1, 1.2, 1.0}));
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->ranks, (Ranks{0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(slow->seconds, 2.05);
  EXPECT_DOUBLE_EQ(slow->others, 1.05);
}

TEST(SlowRanks, NoneAmongEqualsOrInTooShortATime) {
  EXPECT_FALSE(findSlowRanks(states({1.0, 1.2, 1.1, 1.25})));
  EXPECT_FALSE(findSlowRanks(states({0.001, 0.005})));
  EXPECT_FALSE(findSlowRanks(states({1, 9}, /*windows=*/0)));
  EXPECT_FALSE(findSlowRanks(states({9})));
  EXPECT_FALSE(findSlowRanks({}));
}

TEST(SlowRankWatch, WarnsOfWhatLastsAndSeldom) {
  SlowRankWatch watch;
  const Busy slow = {1, 1, 2}, usual = {1, 1, 1};
  EXPECT_FALSE(watch.observe(states(slow, 1)));
  EXPECT_FALSE(watch.observe(states(slow, 1))); // the same window
  EXPECT_FALSE(watch.observe(states(usual, 2)));
  EXPECT_FALSE(watch.observe(states(slow, 3)));
  const auto warned = watch.observe(states(slow, 4));
  ASSERT_TRUE(warned);
  EXPECT_EQ(warned->ranks, Ranks{2});
  uint64_t window = 5;
  while (!watch.observe(states(slow, window)))
    ASSERT_LT(++window, 100u);
  EXPECT_EQ(window, 44u);
}

// Which of its ranks is the slowest changes from window to window.
TEST(SlowRankWatch, WarnsOfASlowNodeAtOnce) {
  SlowRankWatch watch;
  EXPECT_FALSE(watch.observe(states({1, 1, 2.1, 2.0}, 1)));
  const auto warned = watch.observe(states({1, 1, 2.0, 2.1}, 2));
  ASSERT_TRUE(warned);
  EXPECT_EQ(warned->ranks, (Ranks{2, 3}));
}

TEST(SlowRankWatch, AnotherRankEachTimeIsNoSlowRank) {
  SlowRankWatch watch;
  for (uint64_t window = 1; window < 20; ++window)
    EXPECT_FALSE(watch.observe(states(window % 2 ? Busy{2, 1, 1} : Busy{1, 1, 2}, window)));
}

TEST(Progress, CountsWhatIsNeitherWaitNorOtherWork) {
  using namespace std::chrono_literals;
  Progress progress;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t step = 1; step <= Progress::kBusyWindow; ++step) {
    progress.enter(Activity::Reading, step);
    std::this_thread::sleep_for(1ms);
    progress.enter(Activity::Computing, step);
    std::this_thread::sleep_for(1ms);
    {
      Progress::Wait wait(&progress);
      std::this_thread::sleep_for(4ms);
    }
    progress.enter(Activity::Saving, step);
    std::this_thread::sleep_for(4ms);
    EXPECT_EQ(progress.state().windows, 0u);
  }
  progress.enter(Activity::Reading, Progress::kBusyWindow + 1);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(progress.state().windows, 1u);
  EXPECT_GE(progress.state().busySeconds, 0.002);
  EXPECT_LE(progress.state().busySeconds, all.count() / Progress::kBusyWindow - 0.008);
}

} // namespace
