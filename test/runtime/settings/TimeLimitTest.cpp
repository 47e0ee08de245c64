#include "runtime/settings/TimeLimit.h"

#include "runtime/folder/RunDirectory.h"
#include "test/runtime/loop/TinyPlan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace lmc {
namespace {

double duration(const std::string &text) {
  auto seconds = parseDuration(text);
  EXPECT_TRUE(seconds) << text;
  return seconds ? *seconds : -1;
}

TEST(TimeLimit, ADurationIsHoursOrHasUnits) {
  EXPECT_EQ(duration("2"), 7200);
  EXPECT_EQ(duration("0.5"), 1800);
  EXPECT_EQ(duration("3h50m"), 3 * 3600 + 50 * 60);
  EXPECT_EQ(duration("1d12h"), 36 * 3600);
  EXPECT_EQ(duration("90s"), 90);
  EXPECT_EQ(duration("1.5m"), 90);
  for (const char *wrong : {"", "0", "-1", "h", "3x", "3h50", "5m3h", "3h3h", "1e3", "inf", "nan",
                            "3h 50m", "3661d", "100000", "99999999999999999999h"})
    EXPECT_FALSE(parseDuration(wrong)) << wrong;
}

double timeOf(const std::string &text) {
  auto seconds = parseTime(text);
  EXPECT_TRUE(seconds) << text;
  return seconds ? *seconds : -1;
}

TEST(TimeLimit, ATimeIsSecondsOrIso8601) {
  EXPECT_EQ(timeOf("1795354800"), 1795354800);
  EXPECT_EQ(timeOf("2199-12-31T23:59:59Z"), 7258118399);
  // date -u -d 2026-11-22T13:40:00Z +%s
  EXPECT_EQ(timeOf("2026-11-22T13:40:00Z"), 1795354800);
  EXPECT_EQ(timeOf("2026-11-22T13:40Z"), 1795354800);
  EXPECT_EQ(timeOf("2026-11-22 15:40:00+02:00"), 1795354800);
  EXPECT_EQ(timeOf("2026-11-22T08:10-0530"), 1795354800);
  for (const char *wrong : {"", "tomorrow", "7258118400", "2200-01-01T00:00Z", "9999-01-01T00:00",
                            "2026-11-22", "2026-11-22T13", "2026-11-22T13:40X",
                            "2026-11-22T13:40+2", "2026-11-22T13:40:00+02:00Z", "12s"})
    EXPECT_FALSE(parseTime(wrong)) << wrong;
}

TEST(TimeLimit, ATimeWithoutAZoneIsLocal) {
  const char *before = std::getenv("TZ");
  const std::string zone = before ? before : "";
  ::setenv("TZ", "UTC-3", 1); // POSIX counts west: three hours ahead of UTC
  ::tzset();
  EXPECT_EQ(timeOf("2026-11-22T16:40"), 1795354800);
  before ? ::setenv("TZ", zone.c_str(), 1) : ::unsetenv("TZ");
  ::tzset();
}

class FindTimeLimit : public ::testing::Test {
protected:
  std::map<std::string, std::string> variables;
  Environment environment = [this](const char *name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  std::string found(const std::string &maxHours, const std::string &deadline) {
    auto limit = findTimeLimit(maxHours, deadline, environment, /*began=*/1000);
    if (!limit)
      return limit.error().message;
    return *limit ? fmt::format("{} {}", (*limit)->end, (*limit)->source) : "none";
  }
};

TEST_F(FindTimeLimit, TheEarliestCounts) {
  EXPECT_EQ(found("", ""), "none");
  EXPECT_EQ(found("1", ""), "4600 --max-hours=1");
  EXPECT_EQ(found("1", "4000"), "4000 --deadline=4000");
  EXPECT_EQ(found("1", "9000"), "4600 --max-hours=1");
}

TEST_F(FindTimeLimit, TheEndOfTheSlurmJobIsTheDefault) {
  variables["SLURM_JOB_END_TIME"] = "3000";
  EXPECT_EQ(found("", ""), "3000 SLURM_JOB_END_TIME");
  EXPECT_EQ(found("1", ""), "3000 SLURM_JOB_END_TIME");
  EXPECT_EQ(found("10m", ""), "1600 --max-hours=10m");
  EXPECT_EQ(found("", "5000"), "5000 --deadline=5000");
  EXPECT_EQ(found("", "none"), "none");
}

TEST_F(FindTimeLimit, ASlurmJobWithoutAnEndHasNoLimit) {
  variables["SLURM_JOB_END_TIME"] = "9223372036854775807";
  EXPECT_EQ(found("", ""), "none");
}

TEST_F(FindTimeLimit, ARestartHasTheLimitOfTheFirstStartEvenIfItIsOver) {
  const TimeLimit first{999.25, "--max-hours=3h 1"};
  variables[kTimeLimitVariable] = textOf(first);
  EXPECT_EQ(found("1", ""), "999.25 --max-hours=3h 1");
  variables[kTimeLimitVariable] = "soon";
  EXPECT_THAT(found("1", ""), ::testing::StartsWith("LMC_TIME_LIMIT=soon: "));
}

TEST_F(FindTimeLimit, AnErrorNamesTheOption) {
  EXPECT_THAT(found("soon", ""), ::testing::StartsWith("--max-hours: 'soon' is no duration"));
  EXPECT_THAT(found("", "soon"), ::testing::StartsWith("--deadline: 'soon' is no time"));
  EXPECT_EQ(found("", "999"), "--deadline=999: this time is over");
  variables["SLURM_JOB_END_TIME"] = "soon";
  EXPECT_THAT(found("", ""), ::testing::StartsWith("SLURM_JOB_END_TIME=soon"));
}

class Budget : public ::testing::Test {
protected:
  double now = 0;
  TimeBudget budget{TimeLimit{1000, "test"}, [this] { return now; }};
};

TEST_F(Budget, AStepAndTwiceASaveMustFit) {
  budget.stepped(10);
  budget.saved(100);
  now = 1000 - 10 - 2 * 100 - TimeBudget::kEnd;
  EXPECT_FALSE(budget.mustLeave(0, 0));
  now += 0.5;
  EXPECT_TRUE(budget.mustLeave(0, 0));
}

TEST_F(Budget, EnqueuedStepsAndWorkBesideThemCount) {
  budget.stepped(10);
  now = 1000 - 3 * 10 - 50 - TimeBudget::kEnd;
  EXPECT_FALSE(budget.mustLeave(2, 50));
  EXPECT_TRUE(budget.mustLeave(3, 50));
  EXPECT_TRUE(budget.mustLeave(2, 51));
}

TEST_F(Budget, TheLongestOfTheLatestCounts) {
  budget.stepped(70);
  budget.saved(30);
  for (size_t i = 1; i < TimeBudget::kLatestSteps; ++i)
    budget.stepped(1);
  for (size_t i = 1; i < TimeBudget::kLatestSaves; ++i)
    budget.saved(2);
  EXPECT_EQ(budget.step(), 70);
  EXPECT_EQ(budget.save(), 30);
  budget.stepped(1);
  budget.saved(2);
  EXPECT_EQ(budget.step(), 1);
  EXPECT_EQ(budget.save(), 2);
}

TEST_F(Budget, EstimatesCountUntilSomethingIsMeasured) {
  budget.expectStep(50);
  budget.expectSave(200);
  EXPECT_FALSE(budget.hasStepped());
  EXPECT_EQ(budget.neededSeconds(), 50 + 400 + TimeBudget::kEnd);
  now = 560;
  EXPECT_TRUE(budget.mustLeave(0, 0));
  EXPECT_FALSE(budget.mustSave());
  now = 600;
  EXPECT_TRUE(budget.mustSave());
  budget.stepped(1);
  budget.saved(2);
  EXPECT_FALSE(budget.mustLeave(0, 0));
}

TEST(TimeBudget, WithoutALimitNothingEnds) {
  TimeBudget budget(std::nullopt);
  budget.stepped(1e30);
  budget.saved(1e30);
  EXPECT_FALSE(budget.mustLeave(9, 1e30));
  EXPECT_FALSE(budget.mustSave());
}

TEST(ExpectedSave, IsThatOfTheBytesAndThenOfEarlierSaves) {
  test::TestFolder folder;
  test::TinyPlan().write(folder);
  auto plan = PlanFile::open(folder / "tiny.plan");
  ASSERT_TRUE(plan);
  const auto bytes = checkpointBytes(**plan);
  ASSERT_TRUE(bytes);
  const double bySize = expectedSaveSeconds(*bytes, folder / ".");
  EXPECT_GT(bySize, 0);
  EXPECT_LT(bySize, 0.1); // a checkpoint of the tiny model is far below 10 MB
  std::ofstream events(folder / "events.jsonl");
  for (int seconds : {99, 3, 8, 4, 5, 6})
    events << R"({"time":"x","event":"checkpoint","step":1,"seconds":)" << seconds << "}\n";
  events << R"({"event":"validation","seconds":1000,"set":"checkpoint"})"
         << "\n{\"event\":\"checkp";
  events.close();
  EXPECT_EQ(expectedSaveSeconds(*bytes, folder / "."), 8);
}

} // namespace
} // namespace lmc
