#include "runtime/settings/LrSchedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

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

// The oracle: the formulas of release 0.1, in which plans had no other keys.
double oldRate(const LrSettings &s, int64_t step) {
  int64_t warmup = s.warmupIters, decay = s.decayIters;
  if (step <= warmup)
    return s.lr * static_cast<double>(step) / static_cast<double>(warmup);
  if (s.style == LrStyle::Constant)
    return s.lr;
  if (step >= decay)
    return s.minLr;
  int64_t start = warmup;
  if (s.style == LrStyle::Wsd) {
    start = std::max<int64_t>(
        warmup, decay - std::llround(s.wsdDecayFraction * static_cast<double>(decay)));
    if (step <= start)
      return s.lr;
  }
  double progress = static_cast<double>(step - start) / static_cast<double>(decay - start);
  double remaining = s.style == LrStyle::Cosine
                         ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress))
                         : 1.0 - progress;
  return s.minLr + (s.lr - s.minLr) * remaining;
}

TEST(LrSchedule, HasTheBitsThatItHadBeforeOtherKeysCame) {
  for (LrStyle style : kStyles)
    for (double lr : {3e-4, 1e-3, 0.0123456789})
      for (int64_t warmup : {0, 7, 100})
        for (double fraction : {0.0, 0.137, 0.2, 1.0}) {
          LrSettings s = settings(style);
          s.lr = lr;
          s.minLr = lr / 10;
          s.warmupIters = warmup;
          s.decayIters = 997;
          s.wsdDecayFraction = fraction;
          for (int64_t step = 1; step < 1100; ++step)
            ASSERT_EQ(std::bit_cast<uint64_t>(learningRate(s, step)),
                      std::bit_cast<uint64_t>(oldRate(s, step)))
                << "style " << int(style) << ", step " << step;
        }
}

TEST(LrSchedule, ARestartIsTheScheduleAtLaterSteps) {
  for (LrStyle style : {LrStyle::Constant, LrStyle::Linear, LrStyle::Cosine, LrStyle::Wsd,
                        LrStyle::InverseSqrt, LrStyle::Piecewise}) {
    LrSettings s = settings(style), later = s;
    s.points = later.points = {{0, 0}, {10, 1e-3}, {100, 1e-4}};
    later.begin = 15000;
    for (int64_t step = 1; step < 200; ++step)
      EXPECT_EQ(learningRate(later, 15000 + step), learningRate(s, step));
    EXPECT_EQ(learningRate(later, 1), learningRate(s, 1)) << "steps before have the first rate";
  }
}

TEST(LrSchedule, TheWarmUpStartsFromItsRate) {
  LrSettings s = settings(LrStyle::Cosine);
  s.warmupInit = 5e-4;
  EXPECT_DOUBLE_EQ(learningRate(s, 5), 7.5e-4);
  EXPECT_DOUBLE_EQ(learningRate(s, 10), 1e-3);
  s.warmupInit = 2e-3; // down to lr
  EXPECT_DOUBLE_EQ(learningRate(s, 5), 1.5e-3);
}

TEST(LrSchedule, InverseSqrtFallsWithTheRootOfTheStep) {
  LrSettings s = settings(LrStyle::InverseSqrt);
  EXPECT_DOUBLE_EQ(learningRate(s, 10), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(s, 40), 5e-4);
  EXPECT_DOUBLE_EQ(learningRate(s, 90), 1e-3 / 3);
  EXPECT_DOUBLE_EQ(learningRate(s, 110), 1e-3 * std::sqrt(1.0 / 11));
  EXPECT_DOUBLE_EQ(learningRate(s, 111), 1e-4) << "the decay is over";
  s.minLr = 4e-4;
  EXPECT_DOUBLE_EQ(learningRate(s, 90), 4e-4);
  s.warmupIters = 0;
  s.minLr = 0;
  EXPECT_DOUBLE_EQ(learningRate(s, 1), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(s, 4), 5e-4);
}

TEST(LrSchedule, WsdFallsInTheShapeOfItsStyle) {
  // From step 88 to step 110: 11 steps are the half of it, 5.5 a quarter.
  LrSettings s = settings(LrStyle::Wsd);
  auto half = [&](WsdDecayStyle style) {
    s.wsdDecayStyle = style;
    EXPECT_DOUBLE_EQ(learningRate(s, 88), 1e-3);
    EXPECT_DOUBLE_EQ(learningRate(s, 110), 1e-4);
    return (learningRate(s, 99) - 1e-4) / 9e-4;
  };
  EXPECT_NEAR(half(WsdDecayStyle::Linear), 0.5, 1e-12);
  EXPECT_NEAR(half(WsdDecayStyle::Cosine), 0.5, 1e-12);
  EXPECT_NEAR(half(WsdDecayStyle::Exponential), std::sqrt(2) - 1, 1e-12);
  EXPECT_NEAR(half(WsdDecayStyle::MinusSqrt), 1 - std::sqrt(0.5), 1e-12);
}

TEST(LrSchedule, PiecewiseIsLinearBetweenItsPoints) {
  LrSettings s = settings(LrStyle::Piecewise);
  s.points = {{4, 1e-3}, {8, 3e-3}, {9, 1e-3}};
  for (auto [step, rate] : {std::pair(1, 1e-3),
                            {4, 1e-3},
                            {5, 1.5e-3},
                            {7, 2.5e-3},
                            {8, 3e-3},
                            {9, 1e-3},
                            {1000, 1e-3}})
    EXPECT_DOUBLE_EQ(learningRate(s, step), rate) << step;
}

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
