#include "runtime/monitor/Routers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lmc {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Routers, LoadsAreSharesOfAllChoices) {
  const RouterRecord router{
      .layer = 3, .counts = {6, 1, 3, 10}, .entropy = 1.25, .balanceLoss = 2.5};
  EXPECT_THAT(valuesOf(router), ElementsAre(Pair("max_load", 0.5), Pair("min_load", 0.05),
                                            Pair("entropy", 1.25), Pair("balance_loss", 2.5)));
  RouterRecord cut = router;
  cut.late = 0.125;
  EXPECT_EQ(valuesOf(cut).back(), (std::pair<const char *, double>("late", 0.125)));
}

} // namespace
} // namespace lmc
