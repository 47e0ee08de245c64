#include "runtime/comm/Stall.h"

#include <gtest/gtest.h>

#include <thread>

using namespace lmc;

namespace {

const StallLimits kLimits{10, 3, 1800};

// A rank in step 17 that has not got on for so long.
RankProgress rank(Activity activity, bool waits, double seconds, double stepSeconds = 1) {
  Progress::State state;
  state.activity = activity;
  state.step = 17;
  state.moves = 99;
  state.waits = waits;
  state.stepSeconds = stepSeconds;
  return {state, seconds, true};
}
RankProgress waiting(double seconds) { return rank(Activity::Computing, true, seconds); }

int stalled(const std::vector<RankProgress> &ranks) {
  const auto stall = findStall(ranks, kLimits);
  return stall ? stall->rank : -2;
}
constexpr int kNone = -2;

TEST(Stall, ARankThatTheOthersWaitFor) {
  for (Activity activity : {Activity::Reading, Activity::Computing}) {
    EXPECT_EQ(stalled({waiting(11), rank(activity, false, 12), waiting(11)}), 1);
    EXPECT_EQ(stalled({waiting(9), rank(activity, false, 9.5), waiting(9)}), kNone);
    // It has been at it for long, and the others have only just come.
    EXPECT_EQ(stalled({waiting(3), rank(activity, false, 12), waiting(3)}), kNone);
    // One of the others still computes.
    EXPECT_EQ(stalled({waiting(11), rank(activity, false, 12), rank(activity, false, 1)}), 1);
  }
  const auto stall = findStall({rank(Activity::Reading, false, 31), waiting(30)}, kLimits);
  EXPECT_EQ(stall->seconds, 31);
}

TEST(Stall, NobodyWaits) {
  EXPECT_EQ(stalled({rank(Activity::Computing, false, 500), rank(Activity::Reading, false, 500)}),
            kNone);
  EXPECT_EQ(stalled({rank(Activity::Computing, false, 500)}), kNone);
  EXPECT_EQ(stalled({}), kNone);
}

TEST(Stall, TheLongestOfSeveral) {
  EXPECT_EQ(stalled({rank(Activity::Computing, false, 12), waiting(11),
                     rank(Activity::Reading, false, 40)}),
            2);
}

TEST(Stall, LongStepsHaveALongerLimit) {
  EXPECT_EQ(stalled({waiting(100), rank(Activity::Computing, false, 100, 40)}), kNone);
  EXPECT_EQ(stalled({waiting(121), rank(Activity::Computing, false, 121, 40)}), 1);
}

TEST(Stall, WorkBesideStepsMayTakeLong) {
  for (Activity activity :
       {Activity::Starting, Activity::Validating, Activity::Generating, Activity::Comparing,
        Activity::Saving, Activity::Logging, Activity::Ending}) {
    EXPECT_EQ(stalled({waiting(1000), rank(activity, false, 1000)}), kNone);
    EXPECT_EQ(stalled({waiting(1801), rank(activity, false, 1801)}), 1);
  }
}

TEST(Stall, LinksAreMeasuredInAShortTime) {
  auto measuring = [](bool waits, double seconds) {
    return rank(Activity::Measuring, waits, seconds, 0);
  };
  EXPECT_EQ(stalled({measuring(true, 9), measuring(false, 9)}), kNone);
  EXPECT_EQ(stalled({measuring(true, 11), measuring(false, 11)}), 1);
}

TEST(Stall, TheFirstStepMayTakeLong) {
  auto first = [](Activity activity, bool waits, double seconds) {
    return rank(activity, waits, seconds, 0);
  };
  EXPECT_EQ(
      stalled({first(Activity::Computing, true, 1000), first(Activity::Computing, false, 1000)}),
      kNone);
  EXPECT_EQ(
      stalled({first(Activity::Computing, true, 1900), first(Activity::Computing, false, 1900)}),
      1);
}

// A collective over a slow network may take long.
TEST(Stall, AllWaitForEachOther) {
  EXPECT_EQ(stalled({waiting(1000), waiting(1000)}), kNone);
  EXPECT_EQ(stalled({waiting(1801), waiting(1802)}), -1);
  EXPECT_EQ(stalled({waiting(1801), waiting(2)}), kNone);
  // The rank that saves waits for the others within its save.
  EXPECT_EQ(stalled({waiting(1000), rank(Activity::Saving, true, 1000)}), kNone);
}

TEST(Stall, ARankThatHasLeftDoesNotCount) {
  RankProgress left = rank(Activity::Ending, false, 5000);
  left.isHere = false;
  EXPECT_EQ(stalled({waiting(5), left}), kNone);
  EXPECT_EQ(stalled({waiting(11), rank(Activity::Reading, false, 12), left}), 1);
}

TEST(Progress, SaysWhatTheMainThreadDoes) {
  Progress progress;
  EXPECT_EQ(progress.state().step, 0u);
  progress.enter(Activity::Reading, 4);
  const uint64_t moves = progress.state().moves;
  {
    Progress::Wait waits(&progress);
    EXPECT_TRUE(progress.state().waits);
    EXPECT_NE(progress.state().moves, moves);
    { Progress::Wait within(&progress); }
    EXPECT_TRUE(progress.state().waits);
  }
  EXPECT_FALSE(progress.state().waits);
  std::jthread([&] {
    Progress::Wait other(&progress);
    EXPECT_FALSE(progress.state().waits);
  }).join();
  Progress::Wait none(nullptr);
  EXPECT_EQ(progress.state().activity, Activity::Reading);
  {
    const uint64_t before = progress.state().moves;
    const Progress::Aside aside(progress, Activity::Logging);
    EXPECT_EQ(progress.state().activity, Activity::Logging);
    EXPECT_EQ(progress.state().step, 4u);
    EXPECT_NE(progress.state().moves, before);
  }
  EXPECT_EQ(progress.state().activity, Activity::Reading);
}

// A main thread that hangs before it enters anything.
TEST(Progress, TheThreadThatMakesItIsTheMainThread) {
  Progress progress;
  const Progress::Wait wait(&progress);
  EXPECT_TRUE(progress.state().waits);
}

TEST(Progress, TheLongestStepIsForgottenAfterAWindow) {
  using namespace std::chrono_literals;
  Progress progress;
  uint64_t number = 0;
  auto step = [&](std::chrono::milliseconds read, std::chrono::milliseconds saved) {
    progress.enter(Activity::Reading, ++number);
    std::this_thread::sleep_for(read);
    progress.enter(Activity::Saving, number);
    std::this_thread::sleep_for(saved);
  };
  step(1ms, 0ms);
  step(1ms, 0ms);
  step(1ms, 300ms);
  EXPECT_EQ(progress.state().stepSeconds, 0) << "of the first two steps";
  step(300ms, 0ms);
  EXPECT_GE(progress.state().stepSeconds, 0.001);
  EXPECT_LT(progress.state().stepSeconds, 0.3) << "the save is no part of step 3";
  for (uint64_t i = 0; i < Progress::kWindow; ++i) {
    step(1ms, 0ms);
    EXPECT_GE(progress.state().stepSeconds, 0.3) << i;
  }
  step(1ms, 0ms);
  EXPECT_LT(progress.state().stepSeconds, 0.3);
}

} // namespace
