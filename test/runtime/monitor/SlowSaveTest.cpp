#include "runtime/monitor/SlowSave.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

TEST(SlowSave, TwiceTheUsualTimeAndASecondIsSlow) {
  SlowSaveWatch watch;
  EXPECT_FALSE(watch.ended(2));
  EXPECT_FALSE(watch.ended(20)) << "one save is too few to say what is usual";
  watch = {};
  for (double seconds : {2.0, 2.1, 1.9, 2.0, 3.9})
    EXPECT_FALSE(watch.ended(seconds)) << seconds;
  const auto slow = watch.ended(4);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->seconds, 4);
  EXPECT_EQ(slow->usual, 2);
}

TEST(SlowSave, LessThanASecondIsNoise) {
  SlowSaveWatch watch;
  for (double seconds : {0.01, 0.01, 0.9})
    EXPECT_FALSE(watch.ended(seconds)) << seconds;
  EXPECT_TRUE(watch.ended(1.1));
}

TEST(SlowSave, IsNamedWhileItGoesOnAndNotAgainAtItsEnd) {
  SlowSaveWatch watch;
  for (double seconds : {2.0, 2.0})
    watch.ended(seconds);
  EXPECT_FALSE(watch.goesOn(3.9));
  EXPECT_TRUE(watch.goesOn(4.1));
  EXPECT_FALSE(watch.goesOn(5));
  EXPECT_FALSE(watch.ended(6));
  EXPECT_TRUE(watch.goesOn(6)) << "the next save";
  watch.failed();
  EXPECT_TRUE(watch.goesOn(6)) << "the save after one that failed";
}

// A disk that stays slow is the usual disk.
TEST(SlowSave, IsUsualAfterHalfOfAWindow) {
  SlowSaveWatch watch;
  for (size_t i = 0; i < SlowSaveWatch::kWindow; ++i)
    watch.ended(1);
  size_t slow = 0;
  while (watch.ended(10) && slow < SlowSaveWatch::kWindow)
    ++slow;
  EXPECT_GE(slow, 1u);
  EXPECT_LE(slow, SlowSaveWatch::kWindow / 2 + 1);
}

} // namespace
} // namespace lmc
