#include "tools/lmc-run/launch/Launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace lmc;
using testing::AllOf;
using testing::HasSubstr;

namespace {

struct Outcome {
  int code;
  std::string out, err;
  double seconds;
};

// Runs a shell script as each rank.
Outcome launch(int ranks, const std::string &script, double secondsToEnd = 5) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto start = std::chrono::steady_clock::now();
  const Result<int> code = launchRanks(ranks, {"sh", "-c", script}, secondsToEnd);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  Outcome outcome{code ? *code : -1, testing::internal::GetCapturedStdout(),
                  testing::internal::GetCapturedStderr(), time.count()};
  EXPECT_TRUE(code) << code.error().message;
  return outcome;
}

TEST(LocalLaunch, EachRankLearnsItsPlace) {
  const Outcome outcome = launch(
      3,
      "echo $RANK/$WORLD_SIZE local $LOCAL_RANK at $MASTER_ADDR ${LMC_PORT:+port} >&$((1+RANK%2))");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "0/3 local 0 at 127.0.0.1 port\n");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 1: 1/3 local 1 at 127.0.0.1 port\n"),
                                 HasSubstr("rank 2: 2/3 local 2 at 127.0.0.1 port\n")));
}

TEST(LocalLaunch, TheLastLineNeedsNoEnd) {
  EXPECT_EQ(launch(2, "[ $RANK = 0 ] || printf 'a\\nb'").err, "rank 1: a\nrank 1: b\n");
}

TEST(LocalLaunch, TheFirstCauseIsTheExitCode) {
  EXPECT_EQ(launch(2, "exit 75").code, 75);
  EXPECT_EQ(launch(3, "[ $RANK = 1 ] && exit 4; sleep 0.2; exit 5").code, 4);
  // A rank may say sooner that another has failed than that one ends.
  EXPECT_EQ(launch(3, "[ $RANK = 1 ] && sleep 0.2 && exit 2; exit 5").code, 2);
}

TEST(LocalLaunch, ARankThatASignalEndsIsReported) {
  const Outcome outcome = launch(2, "[ $RANK = 1 ] && kill -9 $$; exit 0");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 was ended by signal 9 (Killed)"));
}

TEST(LocalLaunch, RanksThatDoNotEndAreKilled) {
  const Outcome outcome = launch(3, "[ $RANK = 1 ] && exit 3; exec sleep 60", 0.5);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_GT(outcome.seconds, 0.4);
  EXPECT_LT(outcome.seconds, 10);
}

TEST(LocalLaunch, SignalsArePassedOn) {
  const pid_t launcher = fork(); // a process with one thread, as lmc-run is when it launches
  if (launcher == 0) {
    const auto code =
        launchRanks(2, {"sh", "-c", "trap 'exit 75' USR1; sleep 20 > /dev/null 2>&1 & wait $!"});
    _exit(code ? *code : 1);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(launcher, SIGUSR1);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 75);
}

} // namespace
