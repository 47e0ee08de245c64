#include "runtime/monitor/Plateau.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace lmc {
namespace {

// Returns the steps at which a plateau is found in losses f(step) with noise of a deviation.
std::vector<int64_t> plateaus(int64_t steps, double noise, const std::function<double(double)> &f,
                              double fall = 0.002) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 1);
  PlateauState state;
  std::vector<int64_t> found;
  for (int64_t step = 1; step <= steps; ++step)
    if (observePlateau(state, f(double(step)) + noise * normal(random), fall))
      found.push_back(step);
  return found;
}

// The loss of a run as arXiv 2203.15556 fits it over steps of half a million tokens.
double powerLaw(double step) { return 2.2 + 410.7 / std::pow(step * 5e5, 0.28) * 2; }

TEST(Plateau, ALossThatFallsByAPowerLawHasNone) {
  for (const double noise : {0.0, 0.02, 0.1, 0.5})
    EXPECT_EQ(plateaus(1'000'000, noise, powerLaw).size(), 0u) << noise;
}

TEST(Plateau, ALossThatStaysIsFoundSoonAndOnce) {
  auto stays = [](double step) { return powerLaw(std::min(step, 40'000.0)); };
  const std::vector<int64_t> found = plateaus(400'000, 0.03, stays);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_GT(found[0], 40'000);
  EXPECT_LT(found[0], 60'000); // an eighth of t lies behind an eighth that is flat, from 53,334 on
}

TEST(Plateau, ALossThatRisesSlowlyIsOne) {
  EXPECT_EQ(plateaus(100'000, 0.03, [](double step) { return 3 + step * 1e-7; }).size(), 1u);
}

TEST(Plateau, OneThatEndsAndComesAgainIsFoundAgain) {
  auto twice = [](double step) {
    return step < 50'000 ? 3.0 : step < 150'000 ? 3.0 - (step - 50'000) * 1e-5 : 2.0;
  };
  const std::vector<int64_t> found = plateaus(400'000, 0.03, twice);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_LT(found[0], 50'000);
  EXPECT_GT(found[1], 150'000);
}

TEST(Plateau, NoiseThatHidesTheFallIsNone) {
  EXPECT_EQ(plateaus(4'000, 0.5, [](double) { return 3.0; }).size(), 0u);
  EXPECT_EQ(plateaus(4'000, 0.005, [](double) { return 3.0; }).size(), 1u);
}

TEST(Plateau, AFallOfZeroFindsNone) {
  EXPECT_EQ(plateaus(
                100'000, 0.0, [](double) { return 3.0; }, 0)
                .size(),
            0u);
}

} // namespace
} // namespace lmc
