#include "runtime/monitor/Updates.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmc {
namespace {

using test::TestFolder;

StepUpdates updatesOf(int64_t step) {
  return {step, 0.25, {{"b", true, 0.5, 2}, {"a", false, std::nullopt, std::nan(""), false}}};
}

TEST(Updates, ALineHasRatiosAndSizesInThePlansOrder) {
  TestFolder folder;
  const std::string path = folder / "updates.jsonl";
  auto writer = UpdatesWriter::open(path, 0, []() -> Result<std::string> { return Error{""}; });
  ASSERT_OK(writer);
  ASSERT_OK(writer->write(updatesOf(1)));
  EXPECT_EQ(test::read(path), R"({"step":1,"lr":0.25,"update_ratio":{"b":0.5,"a":null},)"
                              R"("weight_rms":{"b":2.0,"a":null}})"
                              "\n");
}

TEST(Updates, LinesOfLaterStepsAreMoved) {
  TestFolder folder;
  const std::string path = folder / "updates.jsonl";
  auto open = [&](int64_t step) {
    return UpdatesWriter::open(path, step,
                               [&]() -> Result<std::string> { return path + ".undone"; });
  };
  {
    auto writer = open(0);
    ASSERT_OK(writer);
    for (int64_t step : {2, 4, 6})
      ASSERT_OK(writer->write(updatesOf(step)));
  }
  const std::string before = test::read(path);
  const size_t line = before.size() / 3;
  ASSERT_OK(open(3));
  EXPECT_EQ(test::read(path), before.substr(0, line));
  EXPECT_EQ(test::read(path + ".undone"), before.substr(line));
}

} // namespace
} // namespace lmc
