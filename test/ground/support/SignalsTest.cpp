#include "ground/support/Signals.h"

#include "tools/lmc-run/launch/ChildSignals.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace lmc {
namespace {

// As main() of lmc-run does: before any thread of these tests is started, for all tests of this
// program. What a shell in the background or nohup ignores would stay ignored.
const bool started = [] {
  for (int signal : {SIGHUP, SIGINT, SIGQUIT})
    std::signal(signal, SIG_DFL);
  startSignalThread();
  return true;
}();

bool comesTrue(const std::function<bool()> &condition) {
  for (int i = 0; i < 6000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

// Runs `body` in a new process and returns how that ended, as waitpid() says it.
int statusOf(const std::function<void()> &body) {
  const pid_t process = ::fork();
  if (process == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return status;
}

TEST(Signals, EachStopSignalAsksTheRun) {
  for (int signal : kStopSignals) {
    StopSignals stop;
    EXPECT_FALSE(stop.requested());
    ::kill(::getpid(), signal);
    EXPECT_TRUE(comesTrue([&] { return stop.requested(); })) << signal;
    EXPECT_FALSE(StopSignals().requested()) << "an object is asked by later signals only";
  }
}

TEST(Signals, OthersAskNothing) {
  StopSignals stop;
  for (int signal : {SIGCHLD, SIGPROF, SIGVTALRM, SIGIO, SIGURG, SIGWINCH, SIGPWR, SIGRTMIN + 3})
    ::kill(::getpid(), signal);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(stop.requested());
}

TEST(Signals, WithoutARunTheProgramEnds) {
  for (int signal : {SIGTERM, SIGINT, SIGUSR2, SIGQUIT}) {
    const int status = statusOf([&] {
      startSignalThread();
      ::kill(::getpid(), signal);
      ::sleep(60);
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal;
  }
}

TEST(Signals, ASecondInterruptEndsTheProgram) {
  const int status = statusOf([] {
    StopSignals stop;
    ::kill(::getpid(), SIGINT);
    if (!comesTrue([&] { return stop.requested(); }))
      ::_exit(3);
    ::kill(::getpid(), SIGINT);
    ::sleep(60);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

TEST(Signals, NoSignalIsDeliveredToAThreadThatComputes) {
  std::thread([] {
    sigset_t mask;
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
    for (int signal : kStopSignals)
      EXPECT_TRUE(sigismember(&mask, signal)) << signal;
    for (int signal : {SIGQUIT, SIGCHLD, SIGPROF, SIGVTALRM, SIGIO, SIGRTMIN, SIGRTMAX})
      EXPECT_TRUE(sigismember(&mask, signal)) << signal;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGTSTP, SIGCONT})
      EXPECT_FALSE(sigismember(&mask, signal)) << signal;
  }).join();
}

TEST(Signals, ALauncherCanBeQuit) {
  const int status = statusOf([] {
    ChildSignals signals;
    ::kill(::getpid(), SIGQUIT);
    ::sleep(60);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGQUIT);
}

// A program started with SIGCHLD ignored, as some init programs do, could not wait for its children.
TEST(Signals, ChildrenCanBeWaitedFor) {
  const int status = statusOf([] {
    std::signal(SIGCHLD, SIG_IGN);
    blockSignals();
    const pid_t child = ::fork();
    if (child == 0)
      ::_exit(7);
    int code = 0;
    ::_exit(::waitpid(child, &code, 0) == child && WEXITSTATUS(code) == 7 ? 0 : 1);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Signals, AnotherProgramGetsTheMaskOfTheStart) {
  const sigset_t mask = signalMaskAtStart();
  uint64_t before = 0;
  for (int signal = 1; signal <= 64; ++signal)
    before |= uint64_t(sigismember(&mask, signal) == 1) << (signal - 1);
  const int status = statusOf([before] {
    ignoreFailedWrites();
    restoreSignals();
    const std::string set = fmt::format("{:016x}", before);
    // Of grep itself, which has what the shell was started with: some shells block all signals while they
    // start a command.
    const std::string command = "grep -q 'SigBlk:." + set + "' /proc/self/status && ! grep -q "
                                "'SigIgn:.*[13579bdf]...$' /proc/self/status"; // bit 12: SIGPIPE
    ::execlp("sh", "sh", "-c", command.c_str(), nullptr);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

} // namespace
} // namespace lmc
