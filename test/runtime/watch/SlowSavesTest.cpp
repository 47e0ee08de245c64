#include "runtime/watch/SlowSaves.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

class SlowSavesTest : public ::testing::Test {
protected:
  bool goesOn(double seconds) { return !watch.writing(7, seconds).empty(); }
  bool ended(double seconds) { return !watch.saved(7, seconds).empty(); }

  CheckpointState progress;
  SlowSaves watch{progress};
};

TEST_F(SlowSavesTest, OneSaveIsTooFewToSayWhatIsUsual) {
  EXPECT_FALSE(ended(2));
  EXPECT_FALSE(ended(20));
}

TEST_F(SlowSavesTest, TwiceTheUsualTimeAndASecondIsSlow) {
  for (double seconds : {2.0, 2.1, 1.9, 2.0, 3.9})
    EXPECT_FALSE(ended(seconds)) << seconds;
  progress.step = 9;
  const WatchFindings slow = watch.saved(7, 4);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].facts.dump(), R"({"step":9,"saved_step":7,"seconds":4.0,"usual_seconds":2.0})");
}

TEST_F(SlowSavesTest, LessThanASecondIsNoise) {
  for (double seconds : {0.01, 0.01, 0.9})
    EXPECT_FALSE(ended(seconds)) << seconds;
  EXPECT_TRUE(ended(1.1));
}

TEST_F(SlowSavesTest, ASaveIsNamedWhileItGoesOnAndNotAgainAtItsEnd) {
  for (double seconds : {2.0, 2.0})
    ended(seconds);
  EXPECT_FALSE(goesOn(3.9));
  EXPECT_TRUE(goesOn(4.1));
  EXPECT_FALSE(goesOn(5));
  EXPECT_FALSE(ended(6));
  EXPECT_TRUE(goesOn(6)) << "the next save";
  EXPECT_TRUE(watch.saved(7, std::nullopt).empty());
  EXPECT_TRUE(goesOn(6)) << "the save after one that failed";
}

// A disk that stays slow is the usual disk.
TEST_F(SlowSavesTest, SlownessIsUsualAfterHalfOfAWindow) {
  for (size_t i = 0; i < SlowSaves::kWindow; ++i)
    ended(1);
  size_t slow = 0;
  while (ended(10) && slow < SlowSaves::kWindow)
    ++slow;
  EXPECT_GE(slow, 1u);
  EXPECT_LE(slow, SlowSaves::kWindow / 2 + 1);
}

} // namespace
} // namespace lmc
