#include "runtime/watch/UpdateWatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lmc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kLimit = 0.1;
constexpr int64_t kWarmup = 60; // the judgement starts at step 61

TensorUpdate matrix(const std::string &name, std::optional<double> ratio) {
  return {.name = name, .isMatrix = true, .ratio = ratio, .weightRms = 0.02};
}

// Eight matrices with the ratio `usual`, and those of `more`.
StepUpdates step(int64_t number, double usual, std::vector<TensorUpdate> more) {
  StepUpdates updates{.step = number, .lr = 1e-3, .tensors = std::move(more)};
  for (int i = 0; i < 8; ++i)
    updates.tensors.push_back(matrix("usual." + std::to_string(i), usual));
  return updates;
}

std::vector<std::string> names(const WatchFindings &found) {
  std::vector<std::string> result;
  for (const WatchFinding &finding : found)
    for (const auto &tensor : finding.facts["tensors"].items())
      result.push_back(tensor.key());
  return result;
}

TEST(UpdateWatch, NamesTheWorstAndCountsAll) {
  UpdateWatch watch(kLimit, kWarmup);
  TensorUpdate silent = matrix("silent", 1e-5), broken = matrix("broken", std::nullopt);
  silent.hasGradient = false;
  broken.isFinite = false;
  const WatchFindings found =
      watch.updated(step(61, 0.01, {silent, matrix("a", 0.101), matrix("b", 0.5), broken}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(names(found), ElementsAre("broken", "b", "a", "silent"));
  EXPECT_EQ(found[0].warning,
            "step 61: the updates of 4 of 12 tensors are out of range: broken is not finite, b "
            "changes by 0.5 of its weights, a changes by 0.101 of its weights, and 1 more "
            "(guard.update_ratio = 0.1); updates.jsonl has all");
  EXPECT_EQ(found[0].facts["tensors"]["b"]["ratio"], 0.5);
  EXPECT_EQ(found[0].facts["tensors"]["silent"]["fault"], "no_gradient");
}

TEST(UpdateWatch, DoesNotRepeatATensorUntilItWasInRange) {
  UpdateWatch watch(kLimit, kWarmup);
  EXPECT_THAT(names(watch.updated(step(100, 0.01, {matrix("a", 0.2)}))), ElementsAre("a"));
  EXPECT_THAT(watch.updated(step(200, 0.01, {matrix("a", 0.3)})), IsEmpty());
  const auto second = watch.updated(step(300, 0.01, {matrix("a", 0.3), matrix("b", 0.2)}));
  EXPECT_THAT(names(second), ElementsAre("b"));
  EXPECT_THAT(second[0].warning, AllOf(HasSubstr("of 2 of 10"), Not(HasSubstr("a changes"))));
  // What it knows goes on in the run that goes on.
  UpdateWatch next(kLimit, kWarmup);
  ASSERT_TRUE(next.restore(watch.state()));
  EXPECT_THAT(next.updated(step(400, 0.01, {matrix("a", 0.3), matrix("b", 0.2)})), IsEmpty());
  EXPECT_THAT(next.updated(step(500, 0.01, {matrix("a", 0.05), matrix("b", 0.2)})), IsEmpty());
  EXPECT_THAT(names(next.updated(step(600, 0.01, {matrix("a", 0.2), matrix("b", 0.2)}))),
              ElementsAre("a"));
  EXPECT_FALSE(next.restore("{\"a\": 1}"));
}

TEST(UpdateWatch, FirstNamesOnlyMatricesThatAreFarTooSmall) {
  for (int64_t number : {1, 49, 60}) {
    UpdateWatch watch(kLimit, kWarmup);
    EXPECT_THAT(watch.updated(step(number, 0.5, {matrix("a", 9.9)})), IsEmpty());
    EXPECT_THAT(names(watch.updated(step(number, 0.5, {matrix("a", 10.1)}))), ElementsAre("a"));
    EXPECT_THAT(UpdateWatch(20, kWarmup).updated(step(number, 0.5, {matrix("a", 10.1)})),
                IsEmpty());
  }
  UpdateWatch watch(kLimit, kWarmup);
  EXPECT_THAT(watch.updated(step(61, 0.5, {})).at(0).warning,
              StartsWith("step 61: the updates of 8 of 8"));
}

TEST(UpdateWatch, StartsNotBeforeAZeroMatrixCanBeInRange) {
  // In step n of a linear warm-up, all of whose updates have one direction, and in those behind it.
  for (int64_t warmup : {0, 5, 20, 200}) {
    UpdateWatch watch(kLimit, warmup);
    double weight = 0;
    for (int64_t number = 1; number < 400; ++number) {
      const double rate = number <= warmup ? double(number) / double(warmup) : 1;
      const std::optional<double> ratio = weight > 0 ? std::optional(rate / weight) : std::nullopt;
      StepUpdates updates{.step = number, .lr = rate, .tensors = {matrix("a", ratio)}};
      EXPECT_THAT(watch.updated(updates), IsEmpty()) << "step " << number << ", warm-up " << warmup;
      weight += rate;
    }
  }
}

TEST(UpdateWatch, TensorsWithoutAGradientWaitForTheJudgement) {
  UpdateWatch watch(kLimit, kWarmup);
  TensorUpdate norm{.name = "norm", .ratio = 0.0, .hasGradient = false};
  EXPECT_THAT(watch.updated(step(60, 0.01, {norm})), IsEmpty());
  EXPECT_THAT(watch.updated(step(61, 0.01, {norm})).at(0).warning,
              HasSubstr("norm has no gradient"));
}

TEST(UpdateWatch, VectorsMayMoveFar) {
  UpdateWatch watch(kLimit, kWarmup);
  TensorUpdate bias{.name = "bias", .ratio = 2.0};
  EXPECT_THAT(watch.updated(step(100, 0.01, {bias})), IsEmpty());
  bias.isFinite = false;
  EXPECT_THAT(names(watch.updated(step(1, 0.01, {bias}))), ElementsAre("bias"));
}

TEST(UpdateWatch, ALimitOfZeroJudgesNothing) {
  UpdateWatch watch(0, 0);
  TensorUpdate broken = matrix("broken", std::nullopt);
  broken.isFinite = broken.hasGradient = false;
  EXPECT_THAT(watch.updated(step(1000, 5, {broken, matrix("a", 1e4)})), IsEmpty());
}

} // namespace
} // namespace lmc
