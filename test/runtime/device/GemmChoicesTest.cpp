#include "runtime/device/GemmChoices.h"

#include "runtime/comm/LocalWorld.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <thread>

#include <sys/wait.h>
#include <unistd.h>

namespace lmc {
namespace {

using test::TestFolder;

const GemmKey kFirst{"CPU A, 2 threads", "f32 2x3x4"}, kSecond{"CPU A, 2 threads", "f32 5x6x7 +d"};

TEST(GemmChoices, KeepsWhatWasMeasuredInTheCache) {
  TestFolder folder;
  const std::string cache = folder / "new/cache.json";
  GemmChoices first(/*measures=*/true);
  first.readCache(cache);
  EXPECT_FALSE(first.find(kFirst));
  const GemmChoice choice{"MKL", "00ff\"\n", 0.25};
  first.add(kFirst, choice, 0.5);
  first.add(kSecond, {"oneDNN sgemm", "", 0.125}, 0.25);
  EXPECT_EQ(first.summary(), "2 shapes, 2 measured in 0.8 s; 1 MKL, 1 oneDNN");
  first.writeCache(cache);
  EXPECT_TRUE(first.takeWarnings().empty());

  GemmChoices second(true);
  second.readCache(cache);
  EXPECT_TRUE(second.inUse().empty()) << "nothing was asked for";
  EXPECT_EQ(second.find(kFirst), choice);
  EXPECT_FALSE(second.find({"CPU B", kFirst.product}));
  EXPECT_EQ(second.summary(), "1 shape, 1 from the cache; 1 MKL");
}

TEST(GemmChoices, TheRunPrecedesTheCacheAndWhatIsMeasured) {
  TestFolder folder;
  GemmChoices cached(true), run(true);
  cached.add(kFirst, {"MKL", "", 1}, 1);
  cached.add(kSecond, {"MKL", "", 1}, 1);
  cached.writeCache(folder / "cache");
  run.add(kFirst, {"packed", "", 2}, 1);
  ASSERT_OK(run.writeRun(folder / "run"));
  for (bool cacheFirst : {true, false}) {
    GemmChoices choices(true);
    if (cacheFirst)
      choices.readCache(folder / "cache");
    choices.readRun(folder / "run");
    if (!cacheFirst)
      choices.readCache(folder / "cache");
    EXPECT_EQ(choices.find(kFirst)->implementation, "packed");
    EXPECT_EQ(choices.find(kSecond)->implementation, "MKL");
    EXPECT_EQ(choices.summary(), "2 shapes, 1 as in the run, 1 from the cache; 1 MKL, 1 packed");
    EXPECT_EQ(choices.formerDevice(), "");
    ASSERT_OK(choices.writeRun(folder / "next"));
    GemmChoices next(false);
    next.readRun(folder / "next");
    EXPECT_EQ(next.find(kFirst)->implementation, "packed");
    EXPECT_EQ(next.find(kSecond)->implementation, "MKL") << "what the run took from the cache";
  }
}

TEST(GemmChoices, FixedChoicesLeaveTheCacheAlone) {
  TestFolder folder;
  GemmChoices measured(true);
  measured.add(kFirst, {"MKL", "", 1}, 1);
  measured.writeCache(folder / "cache");
  const std::string before = test::read(folder / "cache");

  GemmChoices fixed(false);
  fixed.readCache(folder / "cache");
  EXPECT_FALSE(fixed.find(kFirst));
  fixed.add(kFirst, {"oneDNN", "", 0}, 0);
  EXPECT_EQ(fixed.summary(), "1 shape, 1 by default; 1 oneDNN");
  fixed.writeCache(folder / "cache");
  EXPECT_EQ(test::read(folder / "cache"), before);
  ASSERT_OK(fixed.writeRun(folder / "run"));
  GemmChoices later(true);
  later.readRun(folder / "run");
  EXPECT_EQ(later.find(kFirst)->implementation, "oneDNN") << "a run that goes on keeps its bits";
}

TEST(GemmChoices, TellsThatTheRunWasOnAnotherDevice) {
  TestFolder folder;
  GemmChoices first(true);
  first.add(kFirst, {"MKL", "", 1}, 1);
  ASSERT_OK(first.writeRun(folder / "run"));
  GemmChoices second(true);
  second.readRun(folder / "run");
  const GemmKey moved{"CPU B, 2 threads", kFirst.product};
  EXPECT_FALSE(second.find(moved));
  second.add(moved, {"packed", "", 1}, 1);
  EXPECT_EQ(second.formerDevice(), "CPU A, 2 threads");
  ASSERT_OK(second.writeRun(folder / "run"));
  GemmChoices back(true);
  back.readRun(folder / "run");
  EXPECT_EQ(back.find(kFirst)->implementation, "MKL") << "the first machine's choices are kept";
  EXPECT_EQ(back.formerDevice(), "");
}

TEST(GemmChoices, AChoiceOfTheRunThatTheDeviceRejectsIsNamed) {
  TestFolder folder;
  GemmChoices first(true);
  first.add(kFirst, {"MKL", "", 1}, 1);
  ASSERT_OK(first.writeRun(folder / "run"));
  first.writeCache(folder / "cache");
  for (bool inRun : {true, false}) {
    GemmChoices second(true);
    second.readCache(folder / "cache");
    if (inRun)
      second.readRun(folder / "run");
    ASSERT_TRUE(second.find(kFirst));
    EXPECT_TRUE(second.rejected().empty());
    second.add(kFirst, {"packed", "", 1}, 1);
    second.add(kSecond, {"packed", "", 1}, 1); // it has no choice
    EXPECT_EQ(second.rejected(),
              inRun ? std::vector<std::string>{kFirst.product} : std::vector<std::string>{});
  }
}

TEST(GemmChoices, AFileThatCannotBeReadIsAWarning) {
  TestFolder folder;
  GemmChoices good(true);
  good.add(kFirst, {"MKL", "", 1}, 1);
  good.writeCache(folder / "cache");
  const std::string text = test::read(folder / "cache");
  for (const std::string &damaged :
       {text.substr(0, text.size() / 2), std::string("[]"), std::string("{\"version\": 1}"),
        std::string("{\"version\": 99, \"choices\": []}"),
        std::string("{\"version\": 1, \"choices\": [{\"device\": 3}]}"),
        std::string("\0\xff", 2)}) {
    test::write(folder / "cache", damaged);
    GemmChoices choices(true);
    choices.readCache(folder / "cache");
    EXPECT_FALSE(choices.find(kFirst));
    const std::vector<std::string> warnings = choices.takeWarnings();
    ASSERT_EQ(warnings.size(), 1u) << damaged;
    EXPECT_NE(warnings[0].find(folder / "cache"), std::string::npos);
    EXPECT_NE(warnings[0].find("made again"), std::string::npos);
    EXPECT_TRUE(choices.takeWarnings().empty());
    choices.add(kSecond, {"packed", "", 1}, 1);
    choices.writeCache(folder / "cache");
    GemmChoices mended(true);
    mended.readCache(folder / "cache");
    EXPECT_TRUE(mended.find(kSecond));
  }
}

TEST(GemmChoices, ACacheThatCannotBeWrittenIsAWarning) {
  TestFolder folder;
  test::write(folder / "file", "");
  GemmChoices choices(true);
  choices.add(kFirst, {"MKL", "", 1}, 1);
  choices.writeCache(folder / "file/cache");
  const std::vector<std::string> warnings = choices.takeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("the next start times matrix products again"), std::string::npos);
}

// Ranks 0 and 2 have equal devices, and have measured other choices.
TEST(GemmChoices, RanksWithEqualDevicesTakeThoseOfTheLowest) {
  TestFolder folder;
  const std::string path = folder / "gemm.json";
  const GemmKey big{"a", "big"}, small{"a", "small"}, other{"b", "big"};
  std::vector<std::unique_ptr<World>> worlds = makeLocalWorlds(3, 1);
  std::vector<int> calls(3);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      GemmChoices choices(true);
      auto choose = [&]() -> Result<void> {
        ++calls[static_cast<size_t>(rank)];
        for (const GemmKey &key : rank == 1 ? std::vector{other} : std::vector{big, small})
          if (!choices.find(key))
            choices.add(key, {rank == 2 && key == big ? "MKL" : "packed", "", 1.0 + rank}, 0.1);
        return {};
      };
      ASSERT_TRUE(chooseTogether(&choices, worlds[static_cast<size_t>(rank)].get(), choose));
      if (rank == 0) {
        ASSERT_TRUE(choices.writeRun(path));
      }
      const auto inUse = choices.inUse();
      ASSERT_EQ(inUse.size(), rank == 1 ? 1u : 2u);
      for (const GemmChoices::Use &use : inUse)
        EXPECT_EQ(use.choice.implementation, "packed") << rank;
      if (rank == 2) {
        EXPECT_EQ(choices.summary().substr(0, 31), "2 shapes, 1 as on another rank,");
      }
    });
  ranks.clear();
  EXPECT_EQ(calls, (std::vector<int>{1, 1, 2}));
  GemmChoices next(false);
  next.readRun(path);
  for (const GemmKey &key : {big, small, other})
    EXPECT_TRUE(next.find(key)) << key.device << " " << key.product;
}

TEST(GemmChoices, ProcessesThatWriteAtOnceKeepAllChoices) {
  TestFolder folder;
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (int i = 0; i < 5; ++i) {
        GemmChoices choices(true);
        choices.add({"CPU", std::to_string(child) + " " + std::to_string(i)}, {"MKL", "", 1}, 1);
        choices.writeCache(folder / "cache");
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children)
    ::waitpid(pid, nullptr, 0);
  GemmChoices all(true);
  all.readCache(folder / "cache");
  EXPECT_TRUE(all.takeWarnings().empty());
  for (int child = 0; child < 8; ++child)
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(all.find({"CPU", std::to_string(child) + " " + std::to_string(i)}))
          << child << " " << i;
}

TEST(GemmChoices, TheCacheIsWhereTheUserKeepsCaches) {
  const char *cacheBefore = std::getenv("XDG_CACHE_HOME"), *homeBefore = std::getenv("HOME");
  const std::string cache = cacheBefore ? cacheBefore : "", home = homeBefore ? homeBefore : "";
  ::setenv("HOME", "/home/x", 1);
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(gemmCachePath(), "/home/x/.cache/lmc/gemm.json");
  ::setenv("XDG_CACHE_HOME", "/fast", 1);
  EXPECT_EQ(gemmCachePath(), "/fast/lmc/gemm.json");
  ::unsetenv("HOME");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(gemmCachePath(), "");
  if (cacheBefore)
    ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  if (homeBefore)
    ::setenv("HOME", home.c_str(), 1);
}

} // namespace
} // namespace lmc
