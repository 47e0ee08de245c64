#include "tools/lmc-run/end/Supervise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace lmc {
namespace {

ProcessEnd code(ExitCode code) { return {static_cast<int>(code), 0}; }
ProcessEnd killed(int signal) { return {0, signal}; }

TEST(Restarts, OnlyWhatMayPassIsTriedAgain) {
  for (const ProcessEnd &end : {code(ExitCode::Failure), code(ExitCode::RankFailed),
                                killed(SIGKILL), killed(SIGBUS), killed(SIGSEGV)})
    EXPECT_TRUE(RestartPolicy(1, 0).next(end, 0)) << textOf(end);
  for (const ProcessEnd &end :
       {code(ExitCode::Success), code(ExitCode::UserError), code(ExitCode::DoesNotFit),
        code(ExitCode::Diverged), code(ExitCode::SlowLink), code(ExitCode::Interrupted),
        ProcessEnd{77, 0}})
    EXPECT_FALSE(RestartPolicy(1, 0).next(end, 100)) << textOf(end);
}

TEST(Restarts, TheWaitDoublesUpToAMinute) {
  RestartPolicy policy(100, 7);
  std::vector<double> waits;
  for (int i = 0; i < 9; ++i)
    waits.push_back(policy.next(killed(SIGKILL), 7)->wait);
  EXPECT_THAT(waits, ::testing::ElementsAre(1, 2, 4, 8, 16, 32, 60, 60, 60));
}

TEST(Restarts, ProgressResetsTheWaitAndTheCount) {
  RestartPolicy policy(2, 0);
  EXPECT_EQ(policy.next(killed(SIGKILL), 0)->number, 1);
  EXPECT_EQ(policy.next(killed(SIGKILL), 0)->number, 2);
  const auto after = policy.next(killed(SIGKILL), 10);
  EXPECT_EQ(after->number, 1);
  EXPECT_EQ(after->wait, 1);
  EXPECT_EQ(policy.next(killed(SIGKILL), 10)->number, 2);
  EXPECT_FALSE(policy.next(killed(SIGKILL), 10));
}

TEST(Restarts, StepsThatAreDoneAgainAreNoProgress) {
  // Without a checkpoint each start begins at step 0 and fails at step 50.
  RestartPolicy policy(2, 0);
  EXPECT_TRUE(policy.next(killed(SIGKILL), 50));
  EXPECT_TRUE(policy.next(killed(SIGKILL), 20));
  EXPECT_FALSE(policy.next(killed(SIGKILL), 50));
}

TEST(Restarts, WhatTheRunHadDoneBeforeIsNoProgress) {
  RestartPolicy policy(1, 50);
  EXPECT_TRUE(policy.next(killed(SIGKILL), 50));
  EXPECT_FALSE(policy.next(killed(SIGKILL), 50));
}

TEST(Restarts, AnEndIsNamed) {
  EXPECT_EQ(textOf(killed(SIGBUS)), "signal 7 (Bus error)");
  EXPECT_EQ(textOf(code(ExitCode::RankFailed)), "exit code 5 (another rank failed)");
  EXPECT_EQ(textOf(ProcessEnd{77, 0}), "exit code 77");
}

} // namespace
} // namespace lmc
