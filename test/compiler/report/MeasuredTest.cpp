// Measured times beside predicted ones, for a hand-made plan and trace.
#include "compiler/report/Measured.h"

#include "test/ground/plan/PlanBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace lmc;
using nlohmann::json;
using testing::HasSubstr;

namespace {

// micro_first of GAS 3 with two equal products and a copy, and a function that no step runs.
class MeasuredJob : public test::PlanBuilder {
public:
  MeasuredJob() {
    plan.compute_dtype = plan::DType::F32;
    plan::GemmT gemm = product(64, 16, 32);
    command(gemm);
    command(gemm);
    plan::CopyT copy;
    copy.x = gemm.a;
    copy.d = slice(plan::DType::F32, {64, 32});
    command(copy);
    plan.functions[0]->commands[0]->source = "layers.0/up";
    auto eval = std::make_unique<plan::FunctionT>();
    eval->name = "eval";
    auto other = std::make_unique<plan::CommandT>();
    other->body.Set(gemm);
    eval->commands.push_back(std::move(other));
    plan.functions.push_back(std::move(eval));
  }
};

class Measured : public testing::Test {
protected:
  void SetUp() override {
    auto opened = MeasuredJob().open();
    ASSERT_TRUE(opened) << opened.error().message;
    file = std::move(*opened);
    trace["otherData"] = {
        {"plan", file->hash()}, {"device", "a GPU"}, {"first_step", 3}, {"last_step", 4}};
    trace["traceEvents"] = json::array();
    // The median of three runs of a command does not see the slow first one.
    for (double slow : {10.0, 1.0, 1.0})
      for (int command : {0, 1, 2})
        add("micro_first", command, slow * (command + 1) * 100);
  }

  void add(const char *function, int command, double microseconds) {
    trace["traceEvents"].push_back({{"ph", "X"},
                                    {"cat", "Gemm"},
                                    {"dur", microseconds},
                                    {"args", {{"function", function}, {"command", command}}}});
  }

  std::string error() {
    auto times = plan::readMeasuredTimes(trace.dump(), "t.json", *file);
    EXPECT_FALSE(times);
    return times ? "" : times.error().message;
  }

  std::unique_ptr<PlanFile> file;
  json trace;
};

cost::PlanCost predicted(const plan::Plan &plan) {
  auto spec = cost::loadDeviceSpec("cpu");
  EXPECT_TRUE(spec);
  return cost::planCost(plan, cost::CostModel(*spec));
}

} // namespace

TEST_F(Measured, TakesTheMedianAndSortsByTheDifference) {
  auto times = plan::readMeasuredTimes(trace.dump(), "t.json", *file);
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(times->seconds.size(), 2u);
  EXPECT_THAT(times->seconds[0], testing::Pointwise(testing::DoubleNear(1e-12),
                                                    {100e-6, 200e-6, 300e-6}));
  EXPECT_TRUE(times->seconds[1].empty()) << "eval was not run";

  const cost::PlanCost cost = predicted(**file);
  const json report = measuredJson(**file, cost, *times);
  EXPECT_EQ(report["device"], "a GPU");
  EXPECT_NEAR(report["step_seconds"].get<double>(), 600e-6, 1e-9);
  EXPECT_NEAR(report["predicted_step_seconds"].get<double>(), cost.stepSeconds, 1e-12);
  EXPECT_NEAR(report["ratio"].get<double>(), 600e-6 / cost.stepSeconds, 1e-6);
  ASSERT_EQ(report["functions"].size(), 1u);
  EXPECT_EQ(report["functions"][0]["name"], "micro_first");
  std::vector<int> order;
  for (const json &command : report["commands"])
    order.push_back(command["command"]);
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0})) << "predicted are a few us each";
  EXPECT_EQ(report["commands"][2]["source"], "layers.0/up");
  ASSERT_EQ(report["kernels"].size(), 2u);
  for (const json &same : report["kernels"])
    if (same["kind"] == "gemm") {
      EXPECT_EQ(same["title"], "gemm 64x16x32 f32 to f32");
      EXPECT_EQ(same["runs_per_step"], 2);
      EXPECT_NEAR(same["seconds"].get<double>(), 150e-6, 1e-9) << "of one run";
    }
}

TEST_F(Measured, AFittedSpecSaysWhereItsNumbersComeFrom) {
  // A copy as fast as this leaves the two products to the matrix units.
  for (json &event : trace["traceEvents"])
    if (event["args"]["command"] == 2)
      event["dur"] = 0.1;
  auto times = plan::readMeasuredTimes(trace.dump(), "t.json", *file);
  ASSERT_TRUE(times) << times.error().message;
  auto spec = cost::loadDeviceSpec("cpu");
  ASSERT_TRUE(spec);
  spec->launchSeconds = 1e-9; // so that no command is only a launch
  const cost::Refit refit = refitSpec(**file, *times, *spec);
  const std::string text = refitToml(refit, *times, "mine", "t.json");
  EXPECT_THAT(text, HasSubstr("name = \"mine\"\n"));
  EXPECT_THAT(text, HasSubstr("# steps 3 to 4 on a GPU."));
  EXPECT_THAT(text, HasSubstr("# fitted to 2 commands: "));
  auto read = cost::parseDeviceSpec(text, "mine.toml");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->defaultOf.empty()) << "it is the default of no device";
  EXPECT_FALSE(fittedJson(refit).empty());
}

TEST_F(Measured, ATraceOfSomethingElseIsRefused) {
  json good = trace;
  trace["otherData"]["plan"] = "0123";
  EXPECT_THAT(error(), HasSubstr("t.json: measured with a plan of SHA-256 0123, and"));
  trace = good;
  trace.erase("otherData"); // as in the trace of a prediction
  EXPECT_EQ(error(), "t.json: no trace that `lmc-run --trace` wrote");
  trace = good;
  add("micro_first", 3, 1);
  EXPECT_THAT(error(), HasSubstr("the plan has no command 3 of micro_first"));
  trace = good;
  add("micro_first", 0, -1);
  EXPECT_THAT(error(), HasSubstr("-1 us is no time of command 0 of micro_first"));
  trace["traceEvents"] = json::array();
  EXPECT_EQ(error(), "t.json: has no whole run of the function micro_first");
  auto times = plan::readMeasuredTimes("[1, 2", "t.json", *file);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "t.json: no trace that `lmc-run --trace` wrote");
}
