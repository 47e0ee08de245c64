#include "compiler/config/Suggest.h"

#include <gtest/gtest.h>

namespace lmc::config {
namespace {

TEST(Suggest, EditDistanceCountsSlips) {
  EXPECT_EQ(editDistance("", ""), 0u);
  EXPECT_EQ(editDistance("abc", ""), 3u);
  EXPECT_EQ(editDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(editDistance("hiden_size", "hidden_size"), 1u);
  EXPECT_EQ(editDistance("tehta", "theta"), 1u); // neighbours swapped
}

TEST(Suggest, NearestTakesTheClosest) {
  EXPECT_EQ(nearest("beta3", {"beta1", "eta3", "theta"}), "beta1");
  EXPECT_EQ(nearest("lr", {"lr", "min_lr"}), "lr");
}

TEST(Suggest, FarWordsAreNoSuggestion) {
  EXPECT_EQ(nearest("x", {"y"}), std::nullopt);
  EXPECT_EQ(nearest("", {"a"}), std::nullopt);
  EXPECT_EQ(nearest("zzzzzz", {"hidden_size", "vocab_size"}), std::nullopt);
}

} // namespace
} // namespace lmc::config
