#include "runtime/train/LrSchedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmc {
namespace {

LrSettings settings(LrStyle style) {
  LrSettings s;
  s.style = style;
  s.lr = 1e-3;
  s.minLr = 1e-4;
  s.warmupIters = 10;
  s.decayIters = 110;
  s.wsdDecayFraction = 0.2;
  return s;
}

constexpr LrStyle kStyles[] = {LrStyle::Constant, LrStyle::Linear, LrStyle::Cosine, LrStyle::Wsd};

TEST(LrSchedule, WarmsUpLinearlyToTheFullRate) {
  for (LrStyle style : kStyles) {
    EXPECT_DOUBLE_EQ(learningRate(settings(style), 1), 1e-4);
    EXPECT_DOUBLE_EQ(learningRate(settings(style), 5), 5e-4);
    EXPECT_DOUBLE_EQ(learningRate(settings(style), 10), 1e-3);
  }
}

TEST(LrSchedule, ReachesMinLrAtDecayItersAndStaysThere) {
  for (LrStyle style : {LrStyle::Linear, LrStyle::Cosine, LrStyle::Wsd}) {
    EXPECT_GT(learningRate(settings(style), 109), 1e-4);
    EXPECT_DOUBLE_EQ(learningRate(settings(style), 110), 1e-4);
    EXPECT_DOUBLE_EQ(learningRate(settings(style), 100000), 1e-4);
  }
}

TEST(LrSchedule, ConstantNeverDecays) {
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Constant), 11), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Constant), 100000), 1e-3);
}

TEST(LrSchedule, LinearFallsByEqualSteps) {
  // A quarter, a half, three quarters of the way from step 10 to step 110.
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Linear), 35), 1e-4 + 0.75 * 9e-4);
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Linear), 60), 1e-4 + 0.5 * 9e-4);
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Linear), 85), 1e-4 + 0.25 * 9e-4);
}

TEST(LrSchedule, CosineIsHalfAPeriod) {
  EXPECT_NEAR(learningRate(settings(LrStyle::Cosine), 35), 1e-4 + 9e-4 * (2 + std::sqrt(2)) / 4,
              1e-15);
  EXPECT_NEAR(learningRate(settings(LrStyle::Cosine), 60), 1e-4 + 9e-4 / 2, 1e-15);
  EXPECT_NEAR(learningRate(settings(LrStyle::Cosine), 85), 1e-4 + 9e-4 * (2 - std::sqrt(2)) / 4,
              1e-15);
}

TEST(LrSchedule, WsdIsStableAndThenFallsInItsLastPart) {
  // 0.2 of 110 steps: from step 88 to step 110.
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Wsd), 11), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Wsd), 88), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(settings(LrStyle::Wsd), 99), 1e-4 + 9e-4 / 2);
}

TEST(LrSchedule, WsdDoesNotFallDuringWarmUp) {
  LrSettings s = settings(LrStyle::Wsd);
  s.wsdDecayFraction = 1.0;
  EXPECT_DOUBLE_EQ(learningRate(s, 10), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(s, 60), 1e-4 + 9e-4 / 2);
}

TEST(LrSchedule, DegenerateSpansAreFinite) {
  for (LrStyle style : kStyles)
    for (int64_t warmup : {0, 5, 20})
      for (int64_t decay : {0, 1, 5, 20})
        for (double fraction : {0.0, 1e-9, 1.0}) {
          LrSettings s = settings(style);
          s.warmupIters = warmup;
          s.decayIters = decay;
          s.wsdDecayFraction = fraction;
          for (int64_t step = 1; step < 30; ++step) {
            double lr = learningRate(s, step);
            EXPECT_TRUE(lr > 0 && lr <= 1e-3) << lr << " at " << step;
          }
        }
}

} // namespace
} // namespace lmc
