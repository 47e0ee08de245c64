#include "tools/lmc-run/monitors/Monitors.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace lmc {
namespace {

using test::TestDisk;
using test::TestFolder;
using ::testing::HasSubstr;

// A run in a folder, with its console and log.
class WatchedRun {
public:
  explicit WatchedRun(const MonitoringConfig &settings, const std::string &out = "") {
    path = out.empty() ? folder.path : out;
    screen = std::fopen((folder / "screen").c_str(), "w");
    console.emplace(screen, screen);
    auto opened = RunLog::open(folder.path); // not in `out`, which a test makes read-only
    EXPECT_TRUE(bool(opened));
    log.emplace(std::move(*opened));
    console->record(&*log);
    monitors.emplace(settings, /*exportCommand=*/"", path, *console, *log, [this] { return now; });
  }
  ~WatchedRun() {
    monitors.reset();
    std::fclose(screen);
  }

  void step(int64_t number, int64_t interval = 1) {
    StepRecord record;
    record.step = number;
    monitors->step(record, interval);
  }
  // Returns how often there was a warning that has `text`.
  size_t warnings(const std::string &text) {
    std::fflush(screen);
    const std::string all = test::read(folder / "screen");
    size_t count = 0;
    for (size_t at = 0; (at = all.find(text, at)) != std::string::npos; ++at)
      ++count;
    return count;
  }
  // Goes on until `done` is true; a test that waits for ever has failed.
  template <typename Done> void until(Done done) {
    for (int i = 0; !done(); ++i) {
      ASSERT_LT(i, 30000) << "not in five minutes";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  TestFolder folder;
  std::string path;
  FILE *screen = nullptr;
  std::chrono::steady_clock::time_point now; // of the monitors
  std::optional<Console> console;
  std::optional<RunLog> log;
  std::optional<Monitors> monitors;
};

std::string textSoFar(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Monitors, TheCommandGetsTheEventItsKindAndStepAndTheFolder) {
  TestFolder results;
  MonitoringConfig settings;
  settings.onEvent = "{ echo $LMC_EVENT $LMC_STEP $LMC_OUT; cat; } > " + (results / "part") +
                     " && mv " + (results / "part") + " " + (results / "$LMC_EVENT") +
                     "; echo heard";
  WatchedRun run(settings);
  run.step(7);
  // A kind that no code names, as it may be added later.
  run.log->event("flood", {{"step", 5}, {"metres", 1.5}});
  run.until([&] { return exists(results / "flood"); });
  std::istringstream text(textSoFar(results / "flood"));
  std::string line;
  std::getline(text, line);
  EXPECT_EQ(line, "flood 5 " + run.path);
  std::getline(text, line);
  EXPECT_EQ(line + "\n", test::read(run.path + "/events.jsonl"));
  // An event without a step has that of the latest one.
  run.log->event("exit", nlohmann::ordered_json::object());
  run.until([&] { return exists(results / "exit"); });
  EXPECT_THAT(textSoFar(results / "exit"), HasSubstr("exit 7 "));
  run.until([&] { return textSoFar(run.path + "/on_event.log") == "heard\nheard\n"; });
  EXPECT_EQ(run.warnings("warning"), 0u);
}

TEST(Monitors, OneCommandOfAKindRunsAtATimeAndTheLatestEventWaits) {
  TestFolder results;
  ASSERT_EQ(::mkfifo((results / "gate").c_str(), 0600), 0);
  MonitoringConfig settings;
  // Each command ends when it can read a line at the gate.
  const int gate = ::open((results / "gate").c_str(), O_RDWR);
  ASSERT_GE(gate, 0);
  settings.onEvent =
      "echo $LMC_STEP >> " + (results / "$LMC_EVENT") + "; read line < " + (results / "gate");
  WatchedRun run(settings);
  for (int step = 1; step <= 4; ++step)
    run.log->event("checkpoint", {{"step", step}});
  run.log->event("spike", {{"step", 9}}); // another kind does not wait
  run.until([&] { return textSoFar(results / "spike") == "9\n"; });
  run.until([&] { return textSoFar(results / "checkpoint") == "1\n"; });
  run.step(5);
  EXPECT_EQ(textSoFar(results / "checkpoint"), "1\n");
  ASSERT_EQ(::write(gate, "\n\n\n", 3), 3);
  run.until([&] {
    run.step(6);
    return textSoFar(results / "checkpoint") == "1\n4\n";
  });
  ::close(gate);
  EXPECT_EQ(run.warnings("warning"), 0u);
}

TEST(Monitors, ACommandThatFailsOrIsKilledIsNoWarningAndLeavesNoZombie) {
  MonitoringConfig settings;
  settings.onEvent = "cd $LMC_OUT; echo $$ > pid-$LMC_EVENT; "
                     "if [ $LMC_EVENT = a ]; then kill -9 $$; fi; exit 7";
  WatchedRun run(settings);
  for (const char *kind : {"a", "b"})
    run.log->event(kind, {{"step", 1}});
  for (const char *kind : {"a", "b"})
    run.until([&] {
      run.step(2);
      const std::string pid = textSoFar(run.path + "/pid-" + kind);
      // A zombie still takes signals.
      return !pid.empty() && ::kill(std::stoi(pid), 0) != 0;
    });
  EXPECT_EQ(run.warnings("warning"), 0u);
}

TEST(Monitors, WhatCannotBeWrittenIsOneWarningUntilItWorksAgain) {
  MonitoringConfig settings;
  settings.tensorboard = true;
  settings.prometheus = "metrics/lmc.prom";
  WatchedRun run(settings);
  test::write(run.path + "/tensorboard", "a file where the folder should be");
  for (int64_t step = 1; step <= 3; ++step)
    run.step(step);
  EXPECT_EQ(run.warnings("warning: monitoring.tensorboard: "), 1u);
  EXPECT_EQ(run.warnings("warning: monitoring.prometheus: "), 1u);
  ASSERT_OK(removeTree(run.path + "/tensorboard"));
  ASSERT_OK(makeFolders(run.path + "/metrics"));
  run.now += std::chrono::seconds(60);
  run.step(4);
  EXPECT_THAT(textSoFar(run.path + "/metrics/lmc.prom"), HasSubstr("lmc_step{run=\"" + run.path));
  EXPECT_TRUE(std::filesystem::is_directory(run.path + "/tensorboard"));
  ASSERT_OK(removeTree(run.path + "/metrics"));
  run.step(5);
  EXPECT_EQ(run.warnings("warning: monitoring.prometheus: "), 2u);
  EXPECT_EQ(run.warnings("warning: monitoring.tensorboard: "), 1u);
}

TEST(Monitors, AReadOnlyFolderIsAWarningAndTheCommandRunsAllTheSame) {
  TestDisk disk(1 << 20);
  if (!disk.mounted)
    GTEST_SKIP() << "cannot mount a disk: " << disk.problem;
  TestFolder results;
  MonitoringConfig settings;
  settings.tensorboard = true;
  settings.prometheus = "lmc.prom";
  settings.onEvent = "touch " + (results / "$LMC_EVENT");
  WatchedRun run(settings, disk.path());
  ASSERT_TRUE(disk.makeReadOnly());
  run.step(1);
  run.step(2);
  EXPECT_EQ(run.warnings("warning: monitoring.tensorboard: "), 1u);
  EXPECT_EQ(run.warnings("warning: monitoring.prometheus: "), 1u);
  run.log->event("checkpoint", {{"step", 2}});
  run.until([&] { return exists(results / "checkpoint"); });
  EXPECT_EQ(run.warnings("monitoring.on_event"), 0u);
}

TEST(Monitors, PrometheusIsWrittenAtTheInterval) {
  MonitoringConfig settings;
  settings.prometheus = "lmc.prom";
  WatchedRun run(settings);
  std::string seen;
  for (int64_t step = 3; step <= 12; ++step) {
    run.step(step, 5);
    const std::string text = textSoFar(run.path + "/lmc.prom");
    const size_t at = text.find("\nlmc_step{");
    seen += text.substr(text.find(' ', at), text.find('\n', at + 1) - text.find(' ', at));
  }
  EXPECT_EQ(seen, " 3 3 5 5 5 5 5 10 10 10");
  run.log->event("exit", {{"code", 0}});
  EXPECT_THAT(textSoFar(run.path + "/lmc.prom"), HasSubstr("} 12\n"));
}

// lmc-wandb's place is taken by a program that writes down how it was started, and then lives as
// long as its input.
TEST(Monitors, TheSenderOfWandbIsStartedOnceAndLearnsOfTheEnd) {
  TestFolder programs;
  test::write(programs / "sender", "#!/bin/sh\necho \"$@\" >> $1/args\ncat\ntouch $1/over\n");
  ASSERT_EQ(::chmod((programs / "sender").c_str(), 0755), 0);
  ::setenv("LMC_WANDB", (programs / "sender").c_str(), 1);
  MonitoringConfig settings;
  settings.wandbProject = "llamas";
  settings.wandbGroup = "sweep 1";
  settings.wandbName = "a b";
  TestFolder out;
  {
    WatchedRun run(settings, out.path);
    run.step(1);
    run.step(2);
    run.until([&] { return !textSoFar(out / "args").empty(); });
    run.step(3);
    EXPECT_EQ(textSoFar(out / "args"), out.path + " --follow --project=llamas --group=sweep 1 "
                                                  "--name=a b\n");
    EXPECT_FALSE(exists(out / "over"));
    run.monitors.reset();
    run.until([&] { return exists(out / "over"); });
    EXPECT_EQ(run.warnings("warning"), 0u);
  }
  ::unsetenv("LMC_WANDB");
}

TEST(Monitors, ASenderThatCannotWorkIsOneWarningAndIsNotStartedAgain) {
  TestFolder programs;
  test::write(programs / "sender", "#!/bin/sh\necho x >> $1/starts\nexit 3\n");
  ASSERT_EQ(::chmod((programs / "sender").c_str(), 0755), 0);
  MonitoringConfig settings;
  settings.wandbProject = "llamas";
  for (const std::string &path : {programs / "sender", programs / "missing"}) {
    ::setenv("LMC_WANDB", path.c_str(), 1);
    WatchedRun run(settings);
    int64_t step = 0;
    run.until([&] {
      run.step(++step);
      return run.warnings("warning: monitoring.wandb_project: ") > 0;
    });
    for (int i = 0; i < 5; ++i)
      run.step(++step);
    EXPECT_EQ(run.warnings("warning"), 1u);
    EXPECT_EQ(textSoFar(run.path + "/starts"), path == programs / "sender" ? "x\n" : "");
  }
  ::unsetenv("LMC_WANDB");
}

TEST(Monitors, ASenderThatFailsAfterItHasWorkedIsAnotherWarningAndOneThatNeverWorksIsNot) {
  TestFolder programs;
  // Lives while the file `works` is there.
  test::write(programs / "sender", "#!/bin/sh\necho $$ > $1/pid\necho x >> $1/starts\n"
                                   "while [ -e $1/works ]; do sleep 0.01; done\nexit 1\n");
  ASSERT_EQ(::chmod((programs / "sender").c_str(), 0755), 0);
  ::setenv("LMC_WANDB", (programs / "sender").c_str(), 1);
  MonitoringConfig settings;
  settings.wandbProject = "llamas";
  WatchedRun run(settings);
  const std::string warning = "warning: monitoring.wandb_project: ";
  // Starts the sender, and goes on until it has written so many lines.
  auto start = [&](size_t starts) {
    run.now += std::chrono::seconds(60);
    run.until([&] {
      run.step(1);
      return textSoFar(run.path + "/starts").size() == 2 * starts;
    });
  };
  start(1);
  run.until([&] {
    run.step(1);
    return run.warnings(warning) == 1;
  });
  test::write(run.path + "/works", "");
  start(2); // that the first one has ended was seen
  run.now += std::chrono::seconds(60);
  run.step(1);
  ASSERT_OK(removeTree(run.path + "/works"));
  run.until([&] {
    run.step(1);
    return run.warnings(warning) == 2;
  });
  // The end of a sender must be seen before the minute until the next start is over.
  auto awaitEnd = [&] {
    const std::string pid = textSoFar(run.path + "/pid");
    const std::string stat = "/proc/" + pid.substr(0, pid.find('\n')) + "/stat";
    run.until([&] {
      const std::string text = textSoFar(stat);
      return text.empty() || text.find(") Z ") != std::string::npos;
    });
    run.step(1);
  };
  start(3);
  awaitEnd();
  start(4);
  awaitEnd();
  start(5);
  EXPECT_EQ(run.warnings(warning), 2u);
  ::unsetenv("LMC_WANDB");
}

// Events of another thread, as a hang is, must not meet a step: both change the same files.
TEST(Monitors, AStepWaitsForTheLockThatEventsOfOtherThreadsHave) {
  MonitoringConfig settings;
  settings.prometheus = "lmc.prom";
  WatchedRun run(settings);
  std::atomic<bool> released = false;
  bool wasReleased = false;
  std::thread other;
  {
    const RunLog::Lock lock = run.log->lock();
    EXPECT_FALSE(std::async(std::launch::async, [&] {
                   return run.log->lockWithin(std::chrono::milliseconds(1)).owns_lock();
                 }).get());
    other = std::thread([&] {
      run.step(1);
      wasReleased = released;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    run.log->event("hang", {{"step", 1}}); // of the thread that has the lock
    released = true;
  }
  other.join();
  EXPECT_TRUE(wasReleased);
}

TEST(Monitors, WarningsAndEventsOfOtherThreadsAreAllWritten) {
  MonitoringConfig settings;
  settings.prometheus = "lmc.prom";
  settings.tensorboard = true;
  WatchedRun run(settings);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int step = 1; step <= 50; ++step) {
        run.log->event("checkpoint", {{"step", step}});
        run.console->warning("here");
      }
    });
  for (int64_t step = 1; step <= 200; ++step)
    run.step(step);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(run.warnings("warning: here\n"), 200u);
  const std::string events = textSoFar(run.folder / "events.jsonl");
  EXPECT_EQ(std::ranges::count(events, '\n'), 400);
}

} // namespace
} // namespace lmc
