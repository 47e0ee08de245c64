#include "runtime/monitor/Routers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lmc {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<RouterRecord> routers(std::vector<std::vector<double>> counts) {
  std::vector<RouterRecord> all;
  for (std::vector<double> &own : counts)
    all.push_back({.layer = int64_t(all.size()) + 1, .counts = std::move(own)});
  return all;
}

TEST(Routers, LoadsAreSharesOfAllChoices) {
  const RouterRecord router{
      .layer = 3, .counts = {6, 1, 3, 10}, .entropy = 1.25, .balanceLoss = 2.5};
  EXPECT_THAT(valuesOf(router), ElementsAre(Pair("max_load", 0.5), Pair("min_load", 0.05),
                                            Pair("entropy", 1.25), Pair("balance_loss", 2.5)));
  RouterRecord cut = router;
  cut.late = 0.125;
  EXPECT_EQ(valuesOf(cut).back(), (std::pair<const char *, double>("late", 0.125)));
}

TEST(DeadExperts, AreReportedWhenTheirWindowIsFull) {
  DeadExpertWatch watch(3);
  EXPECT_FALSE(watch.observe(1, routers({{4, 0}, {2, 2}})));
  EXPECT_FALSE(watch.observe(2, routers({{4, 0}, {2, 2}})));
  const auto verdict = watch.observe(3, routers({{4, 0}, {2, 2}}));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->experts, ElementsAre(Pair(1, ElementsAre(1))));
  EXPECT_EQ(verdict->warning,
            "step 3: 1 of 4 experts got no token in the last 3 steps (guard.dead_expert): expert 1 "
            "of layer 1; a higher model.router_aux_loss_coef keeps experts busy");
  EXPECT_FALSE(watch.observe(4, routers({{4, 0}, {2, 2}}))) << "it is known";
  // One token begins the count anew; another that dies brings all that are dead.
  EXPECT_FALSE(watch.observe(5, routers({{3, 1}, {4, 0}})));
  EXPECT_FALSE(watch.observe(6, routers({{4, 0}, {4, 0}})));
  const auto second = watch.observe(7, routers({{4, 0}, {4, 0}}));
  ASSERT_TRUE(second);
  EXPECT_THAT(second->experts, ElementsAre(Pair(2, ElementsAre(1))));
  const auto both = watch.observe(8, routers({{4, 0}, {4, 0}}));
  ASSERT_TRUE(both);
  EXPECT_THAT(both->experts, ElementsAre(Pair(1, ElementsAre(1)), Pair(2, ElementsAre(1))));
}

TEST(DeadExperts, OfManyLayersAreCounted) {
  DeadExpertWatch watch(1);
  const auto verdict =
      watch.observe(9, routers({{1, 0, 0}, {1, 0, 1}, {0, 0, 2}, {1, 0, 1}, {1, 1, 0}, {0, 1, 1}}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->experts.size(), 6u);
  EXPECT_THAT(
      verdict->warning,
      ::testing::HasSubstr("8 of 18 experts got no token in the last 1 steps "
                           "(guard.dead_expert): expert 1, 2 of layer 1; 1 of layer 2; 0, 1 "
                           "of layer 3; 1 of layer 4; and those of 2 more layers; "));
}

} // namespace
} // namespace lmc
