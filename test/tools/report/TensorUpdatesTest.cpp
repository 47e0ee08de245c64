#include "tools/report/TensorUpdates.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace lmc {
namespace {

using test::TestFolder;

std::string updatesLine(int64_t step, const std::string &ratios, const std::string &sizes) {
  return fmt::format(R"({{"step":{},"lr":0.1,"update_ratio":{{{}}},"weight_rms":{{{}}}}})", step,
                     ratios, sizes) +
         "\n";
}

// The updates of a folder that holds a file of these lines.
struct UpdatesFolder {
  void add(const std::string &text) { std::ofstream(path, std::ios::app) << text; }
  void read() {
    Result<bool> continues = updates.update();
    ASSERT_TRUE(continues);
    if (*continues)
      return;
    updates = TensorUpdates(folder.path);
    ASSERT_TRUE(updates.update());
  }

  TestFolder folder;
  std::string path = folder / "updates.jsonl";
  TensorUpdates updates{folder.path};
};

TEST(TensorUpdates, ReadsRatiosAndSizesInTheOrderOfTheFile) {
  UpdatesFolder run;
  run.read();
  EXPECT_TRUE(run.updates.tensors().empty());
  run.add(updatesLine(3, R"("z":0.5,"a":null)", R"("z":2,"a":null)"));
  run.read();
  run.add(updatesLine(5, R"("z":0.25,"a":0.125)", R"("z":3,"a":7)"));
  run.read();
  ASSERT_EQ(run.updates.tensors().size(), 2u);
  const auto &z = run.updates.tensors()[0], &a = run.updates.tensors()[1];
  EXPECT_EQ(z.name, "z");
  EXPECT_EQ(z.ratio.latest, 0.25);
  EXPECT_EQ(z.ratio.highest->step, 3);
  EXPECT_EQ(z.ratio.highest->value, 0.5);
  EXPECT_EQ(z.firstRms, 2);
  EXPECT_EQ(z.lastRms, 3);
  EXPECT_EQ(z.ratio.groups, (std::vector<std::optional<double>>{0.5, 0.25}));
  EXPECT_EQ(a.ratio.latest, 0.125);
  EXPECT_EQ(a.ratio.highest->step, 5);
  EXPECT_EQ(a.firstRms, 7);
  EXPECT_EQ(a.ratio.groups, (std::vector<std::optional<double>>{std::nullopt, 0.125}));
  EXPECT_EQ(run.updates.groupSteps(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(run.updates.lastStep(), 5);
}

TEST(TensorUpdates, KeepsTheHighestRatioOfEachGroupOfALongRun) {
  UpdatesFolder run;
  std::string text;
  for (int step = 1; step <= 10000; ++step)
    text += updatesLine(step, fmt::format(R"("a":{})", step == 7777 ? 9.0 : 0.001 * (step % 10)),
                        R"("a":1)");
  run.add(text);
  run.read();
  const auto &tensor = run.updates.tensors()[0];
  EXPECT_EQ(tensor.ratio.highest->step, 7777);
  EXPECT_EQ(tensor.ratio.highest->value, 9.0);
  // Groups have 256 lines, the least power of two with which 64 groups hold 10,000.
  const auto &steps = run.updates.groupSteps();
  ASSERT_EQ(steps.size(), 40u);
  ASSERT_EQ(tensor.ratio.groups.size(), 40u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i], std::min<int64_t>(256 * (int64_t(i) + 1), 10000));
    EXPECT_EQ(tensor.ratio.groups[i], i == 7776 / 256 ? 9.0 : 0.001 * 9) << i;
  }
}

TEST(TensorUpdates, ReadsAnewWhenLinesWereTakenBack) {
  UpdatesFolder run;
  const std::string first = updatesLine(2, R"("a":0.5)", R"("a":1)");
  run.add(first + updatesLine(4, R"("a":8)", R"("a":1)") + "x\n");
  run.read();
  EXPECT_EQ(run.updates.tensors()[0].ratio.highest->value, 8);
  EXPECT_EQ(run.updates.damaged(), 1);
  std::filesystem::resize_file(run.path, first.size());
  run.read();
  EXPECT_EQ(run.updates.tensors()[0].ratio.highest->step, 2);
  EXPECT_EQ(run.updates.tensors()[0].ratio.latest, 0.5);
  EXPECT_EQ(run.updates.groupSteps(), std::vector<int64_t>{2});
  EXPECT_EQ(run.updates.damaged(), 0);
  std::filesystem::remove(run.path);
  run.read();
  EXPECT_TRUE(run.updates.tensors().empty());
  EXPECT_EQ(run.updates.lastStep(), 0);
}

TEST(TensorUpdates, LeavesOutAndCountsDamagedLines) {
  UpdatesFolder run;
  const std::string whole = updatesLine(2, R"("a":0.5)", R"("a":1)");
  const std::string damaged[] = {"\n",
                                 "{\n",
                                 "[1]\n",
                                 std::string(100, '[') + "\n",
                                 "\xff\xfe\n",
                                 whole,                                       // the step again
                                 updatesLine(1, R"("a":9)", R"("a":1)"),      // an earlier step
                                 updatesLine(3, R"("a":1e999)", R"("a":1)"),  // no double
                                 "{\"step\":3,\"update_ratio\":{\"a\":1}}\n", // no sizes
                                 "{\"step\":3,\"weight_rms\":{\"a\":1}}\n",   // no ratios
                                 "{\"step\":3.5,\"update_ratio\":{\"a\":9},\"weight_rms\":{}}\n",
                                 "{\"step\":1e300,\"update_ratio\":{\"a\":9},\"weight_rms\":{}}\n"};
  run.add(whole);
  for (const std::string &line : damaged)
    run.add(line);
  // Values that are no sizes are absent, and the line stays.
  run.add(updatesLine(5, R"("a":-1,"b":"x","c":{"d":1})", R"("a":[],"c":2)") + whole.substr(0, 9));
  run.read();
  EXPECT_EQ(run.updates.damaged(), int64_t(std::size(damaged)) + 1);
  EXPECT_EQ(run.updates.lastStep(), 5);
  ASSERT_EQ(run.updates.tensors().size(), 3u);
  EXPECT_EQ(run.updates.tensors()[0].ratio.highest->value, 0.5);
  EXPECT_EQ(run.updates.tensors()[0].ratio.latest, std::nullopt);
  EXPECT_EQ(run.updates.tensors()[0].lastRms, std::nullopt);
  EXPECT_EQ(run.updates.tensors()[1].ratio.highest.has_value(), false);
  EXPECT_EQ(run.updates.tensors()[2].lastRms, 2);
}

TEST(TensorUpdates, KeepsABoundedNumberOfTensors) {
  UpdatesFolder run;
  std::string ratios;
  for (int i = 0; i < 3000; ++i)
    ratios += fmt::format(R"({}"{}":1)", i ? "," : "", i);
  run.add(updatesLine(1, ratios, "") + updatesLine(2, R"("x":1,"0":2)", ""));
  run.read();
  EXPECT_EQ(run.updates.tensors().size(), TensorUpdates::kMaxTensors);
  EXPECT_EQ(run.updates.tensors()[1023].name, "1023");
  EXPECT_EQ(run.updates.leftOut(), 1u);
  EXPECT_EQ(run.updates.tensors()[0].ratio.latest, 2);
  EXPECT_EQ(run.updates.tensors()[1].ratio.latest, std::nullopt) << "not in the latest line";
}

} // namespace
} // namespace lmc
