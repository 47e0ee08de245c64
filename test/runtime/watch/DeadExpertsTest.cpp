#include "runtime/watch/DeadExperts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lmc {
namespace {

// Returns the record of a step whose layers, from 1 on, have these numbers of choices per expert.
StepRecord stepOf(int64_t step, std::vector<std::vector<double>> counts) {
  StepRecord record;
  record.step = step;
  for (std::vector<double> &own : counts)
    record.routers.push_back(
        {.layer = int64_t(record.routers.size()) + 1, .counts = std::move(own)});
  return record;
}

TEST(DeadExperts, AreReportedWhenTheirWindowIsFull) {
  DeadExperts watch(3);
  EXPECT_TRUE(watch.settled(stepOf(1, {{4, 0}, {2, 2}})).empty());
  EXPECT_TRUE(watch.settled(stepOf(2, {{4, 0}, {2, 2}})).empty());
  const WatchFindings first = watch.settled(stepOf(3, {{4, 0}, {2, 2}}));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_STREQ(first[0].event, "dead_expert");
  EXPECT_EQ(first[0].facts.dump(), R"({"step":3,"steps":3,"experts":{"1":[1]}})");
  EXPECT_EQ(first[0].warning,
            "step 3: 1 of 4 experts got no token in the last 3 steps (guard.dead_expert): expert 1 "
            "of layer 1; a higher model.router_aux_loss_coef keeps experts busy");
  EXPECT_TRUE(watch.settled(stepOf(4, {{4, 0}, {2, 2}})).empty()) << "it is known";
  // One token begins the count anew; another that dies brings all that are dead.
  EXPECT_TRUE(watch.settled(stepOf(5, {{3, 1}, {4, 0}})).empty());
  EXPECT_TRUE(watch.settled(stepOf(6, {{4, 0}, {4, 0}})).empty());
  const WatchFindings second = watch.settled(stepOf(7, {{4, 0}, {4, 0}}));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].facts["experts"].dump(), R"({"2":[1]})");
  const WatchFindings both = watch.settled(stepOf(8, {{4, 0}, {4, 0}}));
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].facts["experts"].dump(), R"({"1":[1],"2":[1]})");
}

TEST(DeadExperts, OfManyLayersAreCounted) {
  DeadExperts watch(1);
  const WatchFindings found =
      watch.settled(stepOf(9, {{1, 0, 0}, {1, 0, 1}, {0, 0, 2}, {1, 0, 1}, {1, 1, 0}, {0, 1, 1}}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].facts["experts"].size(), 6u);
  EXPECT_THAT(
      found[0].warning,
      ::testing::HasSubstr("8 of 18 experts got no token in the last 1 steps "
                           "(guard.dead_expert): expert 1, 2 of layer 1; 1 of layer 2; 0, 1 "
                           "of layer 3; 1 of layer 4; and those of 2 more layers; "));
}

} // namespace
} // namespace lmc
