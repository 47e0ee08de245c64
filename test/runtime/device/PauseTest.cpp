#include "runtime/device/cuda/Pause.h"

#include <gtest/gtest.h>

using namespace lmc::cuda;
using namespace std::chrono_literals;

TEST(Pause, GrowsWithTheWait) {
  EXPECT_EQ(pauseAfter(0s), 50us);
  EXPECT_EQ(pauseAfter(3200us), 50us);
  EXPECT_EQ(pauseAfter(32ms), 500us);
  EXPECT_EQ(pauseAfter(64ms), 1ms);
  EXPECT_EQ(pauseAfter(10s), 1ms);
}

// The questions of a wait, and how late its end is seen.
TEST(Pause, AsksSeldomAndIsHardlyLate) {
  for (std::chrono::microseconds work : {1ms, 20ms, 250ms, 5000ms}) {
    std::chrono::microseconds waited{0};
    int questions = 0;
    while (waited < work) {
      waited += pauseAfter(waited);
      ++questions;
    }
    EXPECT_LE(questions, 20 + 300 + work / 1ms);
    EXPECT_LE(waited - work, 50us + work / 50);
  }
}
