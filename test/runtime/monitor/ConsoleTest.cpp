#include "runtime/monitor/Console.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

StepRecord recordOf(int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 2.5;
  r.lr = 3e-4;
  r.gradNorm = 0.75;
  r.tokensPerSecond = 12345;
  r.mfuCausal = 0.125;
  r.mfuFull = std::numeric_limits<double>::quiet_NaN();
  r.stepSeconds = 2;
  r.memoryBytes = uint64_t(3) << 29;
  return r;
}

std::string logOf(int64_t interval, int64_t steps) {
  test::TestFolder folder;
  FILE *out = std::fopen((folder / "log").c_str(), "w");
  {
    Console console(out, out);
    console.setSteps(interval, steps);
    for (int64_t step = 1; step <= steps; ++step)
      console.step(recordOf(step));
    console.warning("disk full");
  }
  std::fclose(out);
  return test::read(folder / "log");
}

TEST(Console, ALogHasAPlainLineAtEachIntervalAndAtBothEnds) {
  std::string log = logOf(5, 12);
  for (const char *step : {"step 1/12 ", "step 5/12 ", "step 10/12 ", "step 12/12 "})
    EXPECT_NE(log.find(step), std::string::npos) << step;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 5);
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  EXPECT_EQ(log.find('\r'), std::string::npos);
}

TEST(Console, ALineSaysAllThatMatters) {
  std::string log = logOf(1, 3);
  EXPECT_EQ(log.substr(0, log.find('\n')),
            "step 1/3 | loss 2.5000 | lr 3.000e-04 | grad norm 0.750 | 12,345 tokens/s | MFU 12.5% "
            "causal, ? full | mem 1.50 GiB | ETA 0:00:04");
  EXPECT_NE(log.find("warning: disk full\n"), std::string::npos);
}

TEST(Console, ALineHasTheFlopsOfADeviceWhereTheyAreKnown) {
  test::TestFolder folder;
  FILE *out = std::fopen((folder / "log").c_str(), "w");
  {
    Console console(out, out);
    console.setSteps(1, 1);
    StepRecord record = recordOf(1);
    record.deviceFlops = 475.4e12;
    console.step(record);
  }
  std::fclose(out);
  EXPECT_NE(test::read(folder / "log").find("causal, ? full, 475 TFLOP/s a device | mem"),
            std::string::npos)
      << test::read(folder / "log");
}

TEST(Console, AValidationIsOnTheLineOfItsStepWithTheNameOfItsSet) {
  test::TestFolder folder;
  FILE *out = std::fopen((folder / "log").c_str(), "w");
  {
    Console console(out, out);
    console.setSteps(100, 1000);
    console.step(recordOf(1));
    StepRecord r = recordOf(2);
    r.validations = {{.set = "", .loss = 1, .bitsPerByte = 0.5}};
    console.step(r);
    r = recordOf(3);
    r.validations = {{.set = "code", .loss = 1}, {.set = "web", .loss = 2, .bitsPerByte = 0.75}};
    console.step(r);
    console.step(recordOf(4));
  }
  std::fclose(out);
  const std::string log = test::read(folder / "log");
  EXPECT_NE(log.find(" | validation loss 1.0000, perplexity 2.718, 0.5000 bits per byte\n"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find(" | validation code: loss 1.0000, perplexity 2.718 | validation web: loss "
                     "2.0000, perplexity 7.389, 0.7500 bits per byte\n"),
            std::string::npos)
      << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3);
}

// After steps of 10,000 and 20,000 tokens/s the average is 11,000, and MFU says the same.
TEST(Console, TheMfuIsThatOfTheRateThatIsShown) {
  test::TestFolder folder;
  FILE *out = std::fopen((folder / "log").c_str(), "w");
  {
    Console console(out, out);
    console.setSteps(1, 3);
    for (int64_t step = 1; step <= 3; ++step) {
      StepRecord r = recordOf(step);
      r.tokensPerSecond = step < 3 ? 10000 : 20000;
      r.mfuCausal = r.mfuFull = step < 3 ? 0.2 : 0.4;
      console.step(r);
    }
  }
  std::fclose(out);
  EXPECT_NE(test::read(folder / "log").find("11,000 tokens/s | MFU 22.0% causal, 22.0% full"),
            std::string::npos)
      << test::read(folder / "log");
}

TEST(Console, TheEtaCountsSavesAndValidations) {
  test::TestFolder folder;
  FILE *out = std::fopen((folder / "log").c_str(), "w");
  {
    Console console(out, out);
    console.setSteps(1, 11);
    StepRecord r = recordOf(1);
    r.pendingSeconds = 3600;
    console.step(r);
  }
  std::fclose(out);
  EXPECT_NE(test::read(folder / "log").find("ETA 1:00:20"), std::string::npos);
}

TEST(Console, FormatsDurations) {
  EXPECT_EQ(formatDuration(0.4), "0:00:00");
  EXPECT_EQ(formatDuration(3723), "1:02:03");
  EXPECT_EQ(formatDuration(2 * 86400 + 3723), "2d 01:02:03");
  EXPECT_EQ(formatDuration(std::numeric_limits<double>::infinity()), "?");
}

} // namespace
} // namespace lmc
