#include "runtime/comm/HangWatch.h"

#include "ground/support/FileWait.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace lmc {
namespace {

const StallLimits kLimits{10, 3, 1800};

Progress::State state(Activity activity, uint64_t moves = 1, double stepSeconds = 1) {
  Progress::State state;
  state.activity = activity;
  state.step = 17;
  state.moves = moves;
  state.stepSeconds = stepSeconds;
  return state;
}

// Returns the seconds without progress after which an activity is warned of; -1: not within 2
// hours.
double warnedAfter(const Progress::State &state) {
  HangJudge judge(kLimits);
  for (double now = 0; now < 7200; ++now)
    if (const auto hang = judge.observe(state, now))
      return hang->kind == Hang::Kind::Hangs ? hang->seconds : -2;
  return -1;
}

TEST(HangJudge, EachActivityHasItsLimit) {
  EXPECT_EQ(warnedAfter(state(Activity::Reading)), 10);
  EXPECT_EQ(warnedAfter(state(Activity::Computing)), 10);
  EXPECT_EQ(warnedAfter(state(Activity::Validating)), 10);
  EXPECT_EQ(warnedAfter(state(Activity::Generating)), 10);
  EXPECT_EQ(warnedAfter(state(Activity::Saving)), 60);
  EXPECT_EQ(warnedAfter(state(Activity::Computing, 1, 40)), 120);
  EXPECT_EQ(warnedAfter(state(Activity::Validating, 1, 40)), 120);
  // It is not known how long a step takes.
  EXPECT_EQ(warnedAfter(state(Activity::Computing, 1, 0)), 1800);
  EXPECT_EQ(warnedAfter(state(Activity::Starting)), 1800);
}

TEST(HangJudge, AConsoleThatTakesNoOutputIsNoHangButADiskIs) {
  Progress::State logging = state(Activity::Logging);
  EXPECT_EQ(warnedAfter(logging), 1800);
  logging.file = "writing /runs/a/metrics.jsonl for 9 s";
  EXPECT_EQ(warnedAfter(logging), 10);
}

TEST(HangJudge, ProgressCountsAnew) {
  HangJudge judge(kLimits);
  for (uint64_t second = 0; second < 100; ++second)
    EXPECT_FALSE(judge.observe(state(Activity::Computing, second / 9), double(second)));
}

TEST(HangJudge, ItWarnsAgainAfterTwiceTheTimeAndSaysThatTheRunGoesOn) {
  HangJudge judge(kLimits);
  std::vector<double> warned;
  for (double now = 0; now < 100; ++now)
    if (const auto hang = judge.observe(state(Activity::Reading), now))
      warned.push_back(hang->seconds);
  EXPECT_EQ(warned, (std::vector<double>{10, 20, 40, 80}));
  const auto after = judge.observe(state(Activity::Reading, 2), 101);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->kind, Hang::Kind::GoesOn);
  EXPECT_EQ(after->seconds, 80);
  EXPECT_FALSE(judge.observe(state(Activity::Reading, 3), 102));
}

TEST(HangJudge, AStoppedProcessIsNoHang) {
  HangJudge judge(kLimits);
  EXPECT_FALSE(judge.observe(state(Activity::Computing), 0));
  EXPECT_FALSE(judge.observe(state(Activity::Computing), 5));
  // The thread of the watch slept for an hour longer than it wanted.
  EXPECT_FALSE(judge.observe(state(Activity::Computing), 3606, 3600));
  EXPECT_FALSE(judge.observe(state(Activity::Computing), 3609));
  EXPECT_TRUE(judge.observe(state(Activity::Computing), 3610));
}

TEST(HangJudge, OnlyAWaitForTheDeviceEndsTheRun) {
  for (bool waits : {false, true}) {
    HangJudge judge(kLimits);
    Progress::State computing = state(Activity::Computing);
    computing.waits = waits;
    std::optional<double> ended;
    for (double now = 0; now < 7200 && !ended; ++now)
      if (const auto hang = judge.observe(computing, now); hang && hang->kind == Hang::Kind::Ends)
        ended = hang->seconds;
    EXPECT_EQ(ended, waits ? std::optional<double>(1800) : std::nullopt);
  }
}

TEST(Describe, WhatHangs) {
  Progress::State now = state(Activity::Computing);
  EXPECT_EQ(describe(now), "computing, step 17");
  now.what = "micro_first, micro-step 1 of 8";
  EXPECT_EQ(describe(now), "computing, step 17: micro_first, micro-step 1 of 8");
  now.waits = true;
  now.waitsFor = "its device";
  EXPECT_EQ(describe(now),
            "computing, step 17: micro_first, micro-step 1 of 8; waits for its device");
  now.activity = Activity::Saving;
  now.waits = false;
  now.file = "writing /a/model.safetensors for 31 s";
  EXPECT_EQ(describe(now), "saving, step 17: writing /a/model.safetensors for 31 s");
  EXPECT_EQ(describe({}), "starting");
}

TEST(HangWatch, TellsOfTheFunctionThatHangs) {
  Progress progress;
  progress.enter(Activity::Validating, 3);
  progress.at("eval");
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Hang> told;
  HangWatch watch(progress, {0.5, 3, 1800}, [&](const Hang &hang) {
    std::lock_guard lock(mutex);
    told = told ? told : hang;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return told.has_value(); });
  EXPECT_EQ(told->kind, Hang::Kind::Hangs);
  EXPECT_EQ(describe(told->state), "validating, step 3: eval");
}

} // namespace
} // namespace lmc
