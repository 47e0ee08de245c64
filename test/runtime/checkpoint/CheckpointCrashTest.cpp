// Kills a process that saves checkpoints without pause, at random moments, and
// checks each time that nothing it had reported as saved is lost.

#include "SavedModel.h"
#include "TestFolder.h"
#include "test/Draws.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace lmc;
using namespace lmc::test;

namespace {

// A save as the child reports it. Every step is saved twice, the second time in
// place of the first, so order is by step and then by variant.
struct Saved {
  uint64_t step = 0, variant = 0;
  auto operator<=>(const Saved &) const = default;
};

// Saves from after `last` on until killed; reports each save that returned.
[[noreturn]] void saveForever(const std::string &run, Saved last, int report) {
  for (uint64_t step = last.step + 1;; ++step)
    for (uint64_t variant : {0, 1}) {
      if (!save(run, step, /*keep=*/2, variant))
        ::_exit(1);
      Saved saved{step, variant};
      if (::write(report, &saved, sizeof saved) != sizeof saved)
        ::_exit(1);
    }
}

} // namespace

TEST(CheckpointCrash, KilledAtDrawnMomentsNothingSavedIsLost) {
  const int64_t kills = drawCount(60);
  TestFolder run;
  std::mt19937_64 random(std::random_device{}());
  // Whatever the disk's speed, a child gets to its first few saves and no further;
  // the cap bounds the test's time.
  auto start = std::chrono::steady_clock::now();
  ASSERT_OK(save(run.path, 1, /*keep=*/2));
  auto longest =
      std::min<std::chrono::microseconds>(std::chrono::duration_cast<std::chrono::microseconds>(
                                              3 * (std::chrono::steady_clock::now() - start)),
                                          std::chrono::milliseconds(700));
  Saved reported{1, 0}; // the newest, by any child
  int midSave = 0, saves = 0;
  for (int64_t kill = 0; kill < kills; ++kill) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(pipe[0]);
      saveForever(run.path, reported, pipe[1]);
    }
    ::close(pipe[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest.count()));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child stopped by itself: a save failed";
    Saved saved;
    while (::read(pipe[0], &saved, sizeof saved) == sizeof saved) {
      ASSERT_GT(saved, reported);
      reported = saved;
      ++saves;
    }
    ::close(pipe[0]);

    Result<std::vector<std::string>> names = listFolder(run / "checkpoints");
    ASSERT_OK(names);
    for (const std::string &name : *names)
      midSave += name.ends_with(".partial");
    std::vector<DamagedCheckpoint> damaged;
    auto latest = findLatestCheckpoint(run.path, damaged);
    ASSERT_OK(latest);
    EXPECT_TRUE(damaged.empty()) << damaged[0].fault; // not even an older one is broken
    ASSERT_TRUE(latest->has_value());
    Result<CheckpointState> state = checkContents(**latest);
    ASSERT_OK(state);
    Saved found{state->step, std::stoull(state->extra["variant"])};
    ASSERT_GE(found, reported) << "kill " << kill;
    reported = found;
  }
  std::printf("%d kills, %d of them inside a save; %d saves up to step %llu\n", int(kills), midSave,
              saves, static_cast<unsigned long long>(reported.step));
  // Else the kills missed what they are meant to hit.
  EXPECT_GT(midSave, kills / 4);
  EXPECT_GT(saves, 0);
}
