#include "ground/support/Nearest.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

TEST(Nearest, EditDistanceCountsSlips) {
  EXPECT_EQ(editDistance("", ""), 0u);
  EXPECT_EQ(editDistance("abc", ""), 3u);
  EXPECT_EQ(editDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(editDistance("hiden_size", "hidden_size"), 1u);
  EXPECT_EQ(editDistance("tehta", "theta"), 1u); // neighbours swapped
}

TEST(Nearest, FindsTheSlipOfAFinger) {
  const std::vector<std::string> keys = {"lr_schedule.lr", "lr_schedule.min_lr", "data.train"};
  EXPECT_EQ(nearestName("lr_schedul.lr", keys), "lr_schedule.lr");
  EXPECT_EQ(nearestName("data.trian", keys), "data.train");
  EXPECT_EQ(nearestName("beta3", {"beta1", "eta3", "theta"}), "beta1");
  EXPECT_EQ(nearestName("lr", {"lr", "min_lr"}), "lr");
}

TEST(Nearest, KeepsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearestName("optimizer", {"data.train"}), "");
  EXPECT_EQ(nearestName("x", {}), "");
  EXPECT_EQ(nearestName("x", {"y"}), "");
  EXPECT_EQ(nearestName("", {"a"}), "");
  EXPECT_EQ(nearestName("zzzzzz", {"hidden_size", "vocab_size"}), "");
}

TEST(Nearest, SuggestsOneName) {
  EXPECT_EQ(suggestion("data.trian", {"data.train"}), "; did you mean 'data.train'?");
  EXPECT_EQ(suggestion("optimizer", {"data.train"}), "");
}

} // namespace
} // namespace lmc
