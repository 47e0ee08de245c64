#include "tools/report/RunHistory.h"
#include "tools/report/Page.h"
#include "tools/report/PublishedCurve.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace lmc {
namespace {

using test::TestFolder;

void append(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::app) << text;
}

// A line of metrics.jsonl; step N ends N minutes after 10:00.
std::string metricsLine(int step, double loss, const std::string &more = "") {
  return fmt::format(
             R"({{"step":{},"loss":{},"lr":1e-3,"grad_norm":1.5,"tokens":{},"tokens_per_second":1000,)"
             R"("mfu_causal":0.4,"step_seconds":2.0,"data_seconds":0.5,"validation_seconds":0,)"
             R"("save_seconds":0,"time":"2026-11-22T10:{:02}:00.000Z"{}}})",
             step, loss, step * 100, step % 60, more) +
         "\n";
}

RunHistory historyOf(const std::string &folder) {
  auto run = RunHistory::open(folder);
  EXPECT_TRUE(run) << run.error().message;
  auto updated = run->update();
  EXPECT_TRUE(updated) << updated.error().message;
  return std::move(*run);
}

TEST(RunHistory, ReadsAStepWithItsValidations) {
  TestFolder folder;
  append(folder / "metrics.jsonl",
         metricsLine(1, 5.0) +
             metricsLine(2, 4.0, R"(,"validation_loss":4.5,"validation":{"code":{"loss":3.5}})") +
             metricsLine(3, 4.25, R"(,"validation_loss":4.75)"));
  const RunHistory run = historyOf(folder.path);
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.end.tokens, 300);
  EXPECT_EQ(run.end.seconds, 6.0);
  ASSERT_TRUE(run.lastLoss && run.lowestLoss);
  EXPECT_EQ(run.lastLoss->value, 4.25);
  EXPECT_EQ(run.lowestLoss->value, 4.0);
  EXPECT_EQ(run.lowestLoss->at.step, 2);
  EXPECT_EQ(run.validations.at("").last.value, 4.75);
  EXPECT_EQ(run.validations.at("").best.value, 4.5);
  EXPECT_EQ(run.validations.at("code").best.value, 3.5);
  EXPECT_NEAR(*run.tokensPerSecond.median(), 1000, 1);
  EXPECT_EQ(run.partSeconds, (std::array<double, 4>{4.5, 1.5, 0, 0}));
  EXPECT_EQ(run.damaged(), 0);
  // The mean of three steps weighs each of them.
  EXPECT_NEAR(*run.meanLoss(), (5.0 + 4.0 + 4.25) / 3, 0.01);
}

TEST(RunHistory, LeavesOutAndCountsDamagedLines) {
  TestFolder folder;
  append(folder / "metrics.jsonl",
         metricsLine(1, 5.0) + "{\"step\":2,\"loss\":4.\n" + "\n" + "[1,2]\n" +
             std::string(100, '[') + "\n" + "{\"step\":\"x\"}\n" + "{\"step\":-4}\n" +
             "\xff\xfe\n" + metricsLine(3, 4.0) + metricsLine(3, 1.0) +
             std::string(3'000'000, 'x') + "\n" + metricsLine(4, 3.0) + "{\"step\":5,\"lo");
  append(folder / "events.jsonl", "{\"event\":7}\n{\"event\":\"warning\",\"text\":[]}\nnothing\n");
  const RunHistory run = historyOf(folder.path);
  EXPECT_EQ(run.steps, 4);
  EXPECT_EQ(run.lines[0].points().size(), 3u);
  EXPECT_EQ(run.damagedMetrics, 9);
  EXPECT_EQ(run.damagedEvents, 2);
  EXPECT_EQ(run.damaged(), 12);
}

TEST(RunHistory, GoesOnWhereItEndedAndCompletesAHalfWrittenLine) {
  TestFolder folder;
  const std::string second = metricsLine(2, 4.0);
  append(folder / "metrics.jsonl", metricsLine(1, 5.0) + second.substr(0, 20));
  RunHistory run = historyOf(folder.path);
  EXPECT_EQ(run.steps, 1);
  EXPECT_EQ(run.damaged(), 1);
  append(folder / "metrics.jsonl", second.substr(20) + metricsLine(3, 3.0));
  ASSERT_TRUE(run.update());
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.lines[0].points().size(), 3u);
  EXPECT_EQ(run.damaged(), 0);
}

TEST(RunHistory, ReadsAnewWhenStepsWereTakenBack) {
  TestFolder folder;
  append(folder / "metrics.jsonl", metricsLine(1, 5.0) + metricsLine(2, 4.0) + metricsLine(3, 9.0));
  RunHistory run = historyOf(folder.path);
  EXPECT_EQ(run.steps, 3);
  // The file is as long as before when it is read again.
  std::filesystem::resize_file(folder / "metrics.jsonl", metricsLine(1, 5.0).size());
  append(folder / "metrics.jsonl", metricsLine(2, 4.1) + metricsLine(3, 3.0));
  ASSERT_TRUE(run.update());
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.lastLoss->value, 3.0);
  EXPECT_EQ(run.end.seconds, 6.0);
  std::filesystem::remove(folder / "metrics.jsonl");
  ASSERT_TRUE(run.update());
  EXPECT_EQ(run.steps, 0);
}

TEST(RunHistory, MarksEventsOfStepsThatWereTakenBack) {
  TestFolder folder;
  append(folder / "metrics.jsonl", metricsLine(1, 5.0) + metricsLine(2, 4.0));
  append(folder / "events.jsonl", R"({"time":"2026-11-22T10:00:00.000Z","event":"start","step":0}
{"time":"2026-11-22T10:01:00.000Z","event":"checkpoint","step":1}
{"time":"2026-11-22T10:05:00.000Z","event":"warning","text":"step 5: loss 9 is high"}
{"time":"2026-11-22T10:06:00.000Z","event":"rewind","step":1,"moved":["x"]}
{"time":"2026-11-22T10:06:01.000Z","event":"start","step":1}
{"time":"2026-11-22T10:07:00.000Z","event":"warning","text":"step 2: loss 8 is high"}
)");
  RunHistory run = historyOf(folder.path);
  const std::vector<const RunEvent *> events = run.events();
  ASSERT_EQ(events.size(), 6u);
  std::vector<bool> takenBack;
  for (const RunEvent *event : events)
    takenBack.push_back(event->takenBack);
  EXPECT_EQ(takenBack, (std::vector<bool>{false, false, true, false, false, false}));
  EXPECT_EQ(*events[2]->step, 5);
  EXPECT_EQ(run.starts, 2);
  EXPECT_EQ(run.warnings, 2);
  EXPECT_FALSE(run.hasEnded());
  append(folder / "events.jsonl", "{\"event\":\"exit\",\"code\":4,\"error\":\"diverged\"}\n");
  ASSERT_TRUE(run.update());
  EXPECT_TRUE(run.hasEnded());
  EXPECT_EQ(run.ending, "exit code 4: diverged");
  append(folder / "events.jsonl", "{\"event\":\"start\",\"step\":2}\n");
  ASSERT_TRUE(run.update());
  EXPECT_FALSE(run.hasEnded());
}

TEST(RunHistory, FindsTheStepOfATime) {
  TestFolder folder;
  std::string text;
  for (int step = 1; step < 60; ++step)
    text += metricsLine(step, 5.0);
  append(folder / "metrics.jsonl", text);
  append(folder / "events.jsonl", R"({"time":"2026-11-22T10:30:30.000Z","event":"slow_rank"})"
                                  "\n");
  const RunHistory run = historyOf(folder.path);
  const RunPosition at = run.positionOfTime(run.events()[0]->seconds);
  EXPECT_EQ(at.step, 30);
  EXPECT_EQ(at.tokens, 3000);
  EXPECT_EQ(at.seconds, 60);
  EXPECT_EQ(run.positionOfStep(30).tokens, 3000);
  EXPECT_EQ(run.positionOfStep(1000).step, 59);
}

TEST(RunHistory, NamesSlowStepsAndWhatTheyWaitedFor) {
  TestFolder folder;
  std::string text;
  for (int step = 1; step <= 40; ++step) {
    std::string line = metricsLine(step, 5.0);
    auto put = [&](const std::string &from, const std::string &to) {
      line.replace(line.find(from), from.size(), to);
    };
    if (step == 10)
      put("\"step_seconds\":2.0,\"data_seconds\":0.5", "\"step_seconds\":9.5,\"data_seconds\":8.0");
    if (step == 20)
      put("\"validation_seconds\":0", "\"validation_seconds\":30");
    if (step == 30)
      put("\"save_seconds\":0", "\"save_seconds\":7");
    if (step == 35)
      put("\"step_seconds\":2.0", "\"step_seconds\":6.0");
    text += line;
  }
  append(folder / "metrics.jsonl", text);
  const RunHistory run = historyOf(folder.path);
  auto slow = [&](StepPart part) {
    std::vector<std::pair<int64_t, double>> steps;
    for (const SlowStep &step : run.slowSteps(part))
      steps.emplace_back(step.step, step.seconds);
    return steps;
  };
  using Steps = std::vector<std::pair<int64_t, double>>;
  EXPECT_EQ(slow(StepPart::Data), (Steps{{10, 8.0}}));
  EXPECT_EQ(slow(StepPart::Validation), (Steps{{20, 30.0}}));
  EXPECT_EQ(slow(StepPart::Save), (Steps{{30, 7.0}}));
  EXPECT_EQ(slow(StepPart::Compute), (Steps{{35, 5.5}}));
}

TEST(RunHistory, CountsStepsWithoutAFiniteLoss) {
  TestFolder folder;
  append(folder / "metrics.jsonl",
         metricsLine(1, 5.0) + "{\"step\":2,\"loss\":null,\"tokens\":200,\"skipped\":true}\n" +
             metricsLine(3, 4.0));
  const RunHistory run = historyOf(folder.path);
  EXPECT_EQ(run.nonFinite, 1);
  EXPECT_EQ(run.skipped, 1);
  EXPECT_EQ(run.lines[0].points().size(), 2u);
}

TEST(RunHistory, KeepsABoundedNumberOfEvents) {
  TestFolder folder;
  append(folder / "metrics.jsonl", metricsLine(1, 5.0));
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += fmt::format(
        "{{\"event\":\"warning\",\"text\":\"step {}: x\"}}\n{{\"event\":\"kind{}\"}}\n", i, i);
  append(folder / "events.jsonl", text);
  const RunHistory run = historyOf(folder.path);
  EXPECT_EQ(run.warnings, 3000);
  EXPECT_LE(run.events().size(), RunHistory::kMaxEvents + 64);
}

TEST(RunHistory, NeedsAFolderWithMetrics) {
  TestFolder folder;
  auto none = RunHistory::open(folder / "none");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ExitCode::UserError);
  EXPECT_NE(none.error().message.find("no such folder"), std::string::npos);
  auto empty = RunHistory::open(folder.path);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ExitCode::UserError);
  EXPECT_NE(empty.error().message.find("no metrics.jsonl"), std::string::npos);
}

// Returns the data of a page.
nlohmann::json dataOf(const std::string &page) {
  const std::string begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(ReportPage, HasABoundedSizeAndTheExtremesOfALongRun) {
  TestFolder folder;
  std::string text;
  for (int step = 1; step <= 20000; ++step)
    text += metricsLine(step, step == 12345 ? 77.5 : 3 + (step % 100) / 1000.0);
  append(folder / "metrics.jsonl", text);
  std::vector<RunHistory> runs;
  runs.push_back(historyOf(folder.path));
  const std::string page = reportPage(runs, {}, {});
  EXPECT_LT(page.size(), 700'000u);
  const nlohmann::json run = dataOf(page)["runs"][0];
  double step = 0, most = 0, at = 0;
  for (size_t i = 0; i < run["lines"]["loss"]["s"].size(); ++i) {
    step += run["lines"]["loss"]["s"][i].get<double>();
    if (run["lines"]["loss"]["y"][i].get<double>() > most) {
      most = run["lines"]["loss"]["y"][i];
      at = step;
    }
  }
  EXPECT_EQ(most, 77.5);
  EXPECT_EQ(at, 12345);
  EXPECT_EQ(step, 20000);
}

TEST(ReportPage, GivesRunsOfOneNameTheirPaths) {
  TestFolder folder;
  std::vector<RunHistory> runs;
  for (const char *name : {"x/run", "y/run", "z/other"}) {
    std::filesystem::create_directories(folder / name);
    append(folder / name + "/metrics.jsonl", metricsLine(1, 5.0));
    runs.push_back(historyOf(folder / name));
  }
  runs.push_back(historyOf(folder / "x/run"));
  const nlohmann::json data = dataOf(reportPage(runs, {}, {}));
  EXPECT_EQ(data["runs"][0]["name"], folder / "x/run");
  EXPECT_EQ(data["runs"][1]["name"], folder / "y/run");
  EXPECT_EQ(data["runs"][2]["name"], "other");
  EXPECT_EQ(data["runs"][3]["name"], (folder / "x/run") + " (2)");
}

TEST(PublishedCurve, ReadsColumnsByTheirNames) {
  TestFolder folder;
  append(folder / "c.csv", "\xef\xbb\xbfstep,\"loss\", tokens\r\n1,3.5,1e9\r\n2,3.25,2e9\r\n\r\n");
  auto curve = readPublishedCurve(folder / "c.csv");
  ASSERT_TRUE(curve) << curve.error().message;
  EXPECT_EQ(curve->name, "c");
  const std::vector<LinePoint> points = curve->line.points();
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].at.tokens, 2e9);
  EXPECT_EQ(points[1].value, 3.25);
}

TEST(PublishedCurve, NamesTheLineOfAMistake) {
  TestFolder folder;
  int number = 0;
  for (const auto &[text, message] : std::vector<std::pair<std::string, std::string>>{
           {"steps,loss\n1,2\n", ":1: the header"},
           {"tokens,loss\n1,2\n2,x\n", ":3: not two numbers"},
           {"tokens,loss\n1\n", ":2: not two numbers"},
           {"tokens,loss\n1,nan\n", ":2: not two numbers"},
           {"tokens,loss\n5,2\n5,2\n", ":3: tokens do not rise"},
           {"tokens,loss\n", "has no points"}}) {
    const std::string path = folder / fmt::format("{}.csv", number++);
    append(path, text);
    auto curve = readPublishedCurve(path);
    ASSERT_FALSE(curve) << text;
    EXPECT_NE(curve.error().message.find(message), std::string::npos) << curve.error().message;
  }
}

} // namespace
} // namespace lmc
