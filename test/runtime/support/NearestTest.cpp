#include "runtime/support/Nearest.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

TEST(Nearest, FindsTheSlipOfAFinger) {
  const std::vector<std::string> keys = {"lr_schedule.lr", "lr_schedule.min_lr", "data.train"};
  EXPECT_EQ(nearestName("lr_schedul.lr", keys), "lr_schedule.lr");
  EXPECT_EQ(nearestName("data.trian", keys), "data.train");
}

TEST(Nearest, KeepsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearestName("optimizer", {"data.train"}), "");
  EXPECT_EQ(nearestName("x", {}), "");
}

} // namespace
} // namespace lmc
