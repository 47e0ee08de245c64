#include "runtime/monitor/Metrics.h"

#include "runtime/monitor/files/LineFile.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>

namespace lmc {
namespace {

using test::TestFolder;

StepRecord record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 1.0 / double(step);
  r.tokens = uint64_t(step) * 100;
  return r;
}

// Opens `path` so that later lines are moved to the folder PATH.undone.
Result<LineFile> open(const std::string &path, int64_t lastStep) {
  return LineFile::openAfter(path, lastStep, [&]() -> Result<std::string> {
    std::filesystem::create_directory(path + ".undone");
    return path + ".undone";
  });
}

void writeSteps(const std::string &path, int64_t first, int64_t last) {
  auto writer = open(path, first - 1);
  ASSERT_OK(writer);
  for (int64_t step = first; step <= last; ++step)
    ASSERT_OK(writer->write(lineOf(record(step))));
}

std::vector<nlohmann::json> lines(const std::string &path) {
  std::vector<nlohmann::json> result;
  std::istringstream text(test::read(path));
  for (std::string line; std::getline(text, line);)
    result.push_back(nlohmann::json::parse(line));
  return result;
}

std::vector<int64_t> steps(const std::string &path) {
  std::vector<int64_t> result;
  for (const auto &line : lines(path))
    result.push_back(line["step"]);
  return result;
}

TEST(Metrics, HasEveryFieldOfAStep) {
  TestFolder folder;
  StepRecord r = record(1);
  r.loss = 2.5;
  r.lr = 3e-4;
  r.gradNorm = 0.5;
  r.updateRatio = 1e-3;
  r.tokensPerSecond = 1000;
  r.mfuCausal = 0.25;
  r.mfuFull = 0.5;
  r.deviceFlops = 2e12;
  r.stepSeconds = 0.1;
  r.memoryBytes = 4096;
  {
    auto writer = open(folder / "m.jsonl", 0);
    ASSERT_OK(writer);
    ASSERT_OK(writer->write(lineOf(r)));
    r.step = 2;
    r.skipped = SkipReason::NotFinite;
    r.gradNorm = std::nan("");
    r.balanceLoss = 0.0625;
    r.routers = {{.layer = 0, .counts = {3, 1}, .entropy = 1 / 3.0, .balanceLoss = 2.5}};
    r.validations = {{.set = "", .loss = 3.5}, {.set = "code", .loss = 2, .bitsPerByte = 0.75}};
    ASSERT_OK(writer->write(lineOf(r)));
  }
  auto written = lines(folder / "m.jsonl");
  for (auto &line : written) {
    const std::string time = line["time"];
    EXPECT_TRUE(std::regex_match(time, std::regex("20..-..-..T..:..:..\\....Z"))) << time;
    line.erase("time");
  }
  nlohmann::json first = {{"step", 1},
                          {"loss", 2.5},
                          {"lr", 0.0003},
                          {"grad_norm", 0.5},
                          {"update_ratio", 0.001},
                          {"tokens", 100},
                          {"mfu_causal", 0.25},
                          {"mfu_full", 0.5},
                          {"step_seconds", 0.1},
                          {"data_seconds", 0.0},
                          {"save_seconds", 0.0},
                          {"memory_bytes", 4096},
                          {"validation_seconds", 0.0},
                          {"tokens_per_second", 1000.0},
                          {"tflops_per_device", 2.0}};
  nlohmann::json second = first;
  second.update(
      {{"step", 2},
       {"grad_norm", nullptr},
       {"skipped", true},
       {"skip_reason", "not_finite"},
       {"balance_loss", 0.0625},
       {"router",
        {{"0",
          {{"max_load", 0.75},
           {"min_load", 0.25},
           {"entropy", 0.3333333},
           {"balance_loss", 2.5}}}}},
       {"validation_loss", 3.5},
       {"validation_perplexity", std::exp(3.5)},
       {"validation",
        {{"code", {{"loss", 2.0}, {"perplexity", std::exp(2.0)}, {"bits_per_byte", 0.75}}}}}});
  EXPECT_EQ(written, (std::vector<nlohmann::json>{first, second}));
}

TEST(Metrics, NoStepAppearsTwiceAfterAResume) {
  TestFolder folder;
  std::string path = folder / "m.jsonl";
  writeSteps(path, 1, 10);
  writeSteps(path, 7, 12); // resumed from step 6
  EXPECT_EQ(steps(path), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  writeSteps(path, 1, 2); // from the beginning
  EXPECT_EQ(steps(path), (std::vector<int64_t>{1, 2}));
  // All lines that were taken back are in the other file, in the order in which they were taken.
  EXPECT_EQ(steps(path + ".undone/m.jsonl"),
            (std::vector<int64_t>{7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(Metrics, AnUnfinishedLastLineIsCut) {
  TestFolder folder;
  std::string path = folder / "m.jsonl";
  writeSteps(path, 1, 3);
  std::string whole = test::read(path);
  // Every place where a crash could have cut the third line, its newline included.
  size_t third = whole.rfind("{\"step\":3");
  for (size_t cut = third; cut < whole.size(); ++cut) {
    test::write(path, whole.substr(0, cut));
    writeSteps(path, 4, 4);
    ASSERT_EQ(steps(path), (std::vector<int64_t>{1, 2, 4})) << cut;
  }
}

TEST(Metrics, AnUnusablePathIsAnError) {
  TestFolder folder;
  EXPECT_ERROR(open(folder / "no/such/m.jsonl", 0), "no/such/m.jsonl");
}

TEST(Metrics, AFullDiskLosesNoLine) {
  test::TestDisk disk(64 * 1024);
  if (!disk.mounted)
    GTEST_SKIP() << "needs the right to mount: " << disk.problem;
  std::string path = disk.path() + "/m.jsonl", ballast = disk.path() + "/ballast";
  auto writer = open(path, 0);
  ASSERT_OK(writer);
  for (int64_t step = 1; step <= 3; ++step)
    ASSERT_OK(writer->write(lineOf(record(step))));
  (void)!writeTextFile(ballast, std::string(128 * 1024, 'x'));
  // The file's last page still has room; then lines are held back.
  int64_t step = 4;
  while (writer->write(lineOf(record(step))) && step < 1000)
    ++step;
  ASSERT_LT(step, 1000) << "the disk never was full";
  EXPECT_FALSE(bool(writer->write(lineOf(record(step + 1)))));
  EXPECT_EQ(steps(path).back(), step - 1) << "a half line was left";
  ASSERT_OK(removeTree(ballast));
  ASSERT_OK(writer->write(lineOf(record(step + 2))));
  auto written = steps(path);
  ASSERT_EQ(written.size(), size_t(step + 2));
  for (size_t i = 0; i < written.size(); ++i)
    EXPECT_EQ(written[i], int64_t(i + 1));
}

// The disk may have room again after the last step of a run, whose line was held back.
TEST(Metrics, LinesThatWereHeldBackAreWrittenAtTheEnd) {
  for (bool byFlush : {true, false}) {
    test::TestDisk disk(64 * 1024);
    if (!disk.mounted)
      GTEST_SKIP() << "needs the right to mount: " << disk.problem;
    std::string path = disk.path() + "/m.jsonl", ballast = disk.path() + "/ballast";
    auto writer = std::make_optional(open(path, 0));
    ASSERT_OK(*writer);
    (void)!writeTextFile(ballast, std::string(128 * 1024, 'x'));
    int64_t step = 1;
    while ((*writer)->write(lineOf(record(step))) && step < 1000)
      ++step;
    ASSERT_LT(step, 1000) << "the disk never was full";
    EXPECT_FALSE(bool((*writer)->flush()));
    ASSERT_OK(removeTree(ballast));
    if (byFlush) {
      ASSERT_OK((*writer)->flush());
    } else {
      writer.reset();
    }
    EXPECT_EQ(steps(path).size(), size_t(step));
  }
}

} // namespace
} // namespace lmc
