#include "runtime/data/Mixture.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace lmc {
namespace {

// Checks every prefix of two periods against the definition, with counts of its own.
void expectFairAtEveryPrefix(const std::vector<double> &weights) {
  auto mixture = Mixture::make(weights);
  ASSERT_TRUE(mixture) << mixture.error().message;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> counts(weights.size());
  for (uint64_t block = 0; block < 2 * mixture->period() + 7; ++block) {
    const Mixture::Place place = (*mixture)(block);
    ASSERT_LT(place.source, weights.size());
    ASSERT_EQ(place.index, counts[place.source]++) << "block " << block;
    for (uint32_t source = 0; source < weights.size(); ++source) {
      ASSERT_EQ(mixture->count(source, block + 1), counts[source]);
      ASSERT_LT(std::abs(double(counts[source]) - double(block + 1) * weights[source] / sum),
                1 - 1e-9)
          << "source " << source << " of " << weights.size() << " after block " << block;
    }
  }
  for (uint32_t source = 0; source < weights.size(); ++source)
    EXPECT_NEAR(double(mixture->perPeriod(source)) / double(mixture->period()),
                weights[source] / sum, 1e-12);
}

TEST(Mixture, SharesAreWithinOneBlockAtEveryPrefix) {
  for (const std::vector<double> &weights :
       std::vector<std::vector<double>>{{1},
                                        {0.25},
                                        {1, 1},
                                        {2, 1},
                                        {0.7, 0.2, 0.1},
                                        {0.9, 0.05, 0.03, 0.02},
                                        {1, 1000},
                                        {5, 5, 5, 5, 5, 5, 5},
                                        {0.125, 3, 17.5},
                                        {1e-3, 1, 1, 1},
                                        {100, 7, 7, 7, 7, 7, 7, 7, 7}})
    expectFairAtEveryPrefix(weights);
}

TEST(Mixture, SharesOfDrawnWeightsAreWithinOneBlock) {
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    std::vector<double> weights(1 + random() % 12);
    for (double &weight : weights) // most of them small, some large
      weight = double(1 + random() % (random() % 3 == 0 ? 1000 : 20)) / 100;
    expectFairAtEveryPrefix(weights);
  }
}

TEST(Mixture, APeriodIsAsShortAsTheWeightsAllow) {
  EXPECT_EQ(Mixture::make({0.7, 0.2, 0.1})->period(), 10u);
  EXPECT_EQ(Mixture::make({70, 20, 10})->period(), 10u);
  EXPECT_EQ(Mixture::make({7e11, 2e11, 1e11})->period(), 10u);
  EXPECT_EQ(Mixture::make({0.5, 0.5})->period(), 2u);
  EXPECT_EQ(Mixture::make({3})->period(), 1u);
}

// A block far away costs no more than the first one.
TEST(Mixture, FindsAnyBlock) {
  auto mixture = Mixture::make({0.7, 0.2, 0.1});
  ASSERT_TRUE(mixture);
  const uint64_t far = uint64_t(1) << 60;
  const Mixture::Place near = (*mixture)(far % 10), place = (*mixture)(far);
  EXPECT_EQ(place.source, near.source);
  EXPECT_EQ(place.index, far / 10 * mixture->perPeriod(near.source) + near.index);
}

TEST(Mixture, RefusesWhatIsNoWeight) {
  auto message = [](const std::vector<double> &weights) {
    auto mixture = Mixture::make(weights);
    return mixture ? std::string() : mixture.error().message;
  };
  EXPECT_NE(message({}).find("there are 0 sources"), std::string::npos);
  EXPECT_NE(message({1, 0}).find("a weight is 0;"), std::string::npos);
  EXPECT_NE(message({-1}).find("a weight is -1;"), std::string::npos);
  EXPECT_NE(message({std::numeric_limits<double>::quiet_NaN()}).find("a weight is nan;"),
            std::string::npos);
  EXPECT_NE(message({std::numeric_limits<double>::infinity()}).find("a weight is inf;"),
            std::string::npos);
  EXPECT_NE(message({0.123456789, 1}).find("fewer digits"), std::string::npos);
  EXPECT_NE(message({1e-300, 1e300}).find("fewer digits"), std::string::npos);
  EXPECT_NE(message(std::vector<double>(1001, 1.0)).find("1001 sources"), std::string::npos);
}

} // namespace
} // namespace lmc
