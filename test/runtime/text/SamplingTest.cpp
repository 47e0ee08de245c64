#include "runtime/text/Generator.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace lmc {
namespace {

TEST(Sampling, TakesTheFirstOfTheMostLikelyTokens) {
  EXPECT_EQ(chooseToken(std::vector<float>{1, 3, 2, 3}, {}, 0.9), 1u);
  EXPECT_EQ(chooseToken(std::vector<float>{-5}, {}, 0), 0u);
}

TEST(Sampling, RefusesLogitsThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(chooseToken(std::vector<float>{1, std::nanf(""), 2}, {}, 0), std::nullopt);
  EXPECT_EQ(chooseToken(std::vector<float>{1, -kInfinity}, {.temperature = 1}, 0), std::nullopt);
  EXPECT_EQ(chooseToken({}, {}, 0), std::nullopt);
}

// Returns how often each of 100,000 numbers, evenly spread over [0, 1), draws each token.
std::map<uint32_t, double> shares(const std::vector<float> &logits,
                                  const SamplingOptions &options) {
  std::map<uint32_t, double> shares;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i)
    shares[chooseToken(logits, options, (i + 0.5) / kDraws).value()] += 1.0 / kDraws;
  return shares;
}

TEST(Sampling, DrawsTokensWithTheirProbabilities) {
  const std::vector<float> logits = {0.5f, -1.0f, 2.0f, 0.0f};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0;
    for (const float logit : logits)
      sum += std::exp(logit / temperature);
    const auto found = shares(logits, {.temperature = temperature});
    for (uint32_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(found.at(i), std::exp(logits[i] / temperature) / sum, 1e-4);
  }
}

TEST(Sampling, TopPKeepsTheFewestTokensThatReachIt) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.4f), std::log(0.1f),
                                     std::log(0.3f)};
  const auto found = shares(logits, {.temperature = 1, .topP = 0.65});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found.at(1), 4.0 / 7, 1e-4);
  EXPECT_NEAR(found.at(3), 3.0 / 7, 1e-4);
  EXPECT_EQ(shares(logits, {.temperature = 1, .topP = 0}).size(), 1u);
  EXPECT_EQ(shares(logits, {.temperature = 1, .topP = 1}).size(), 4u);
}

TEST(Sampling, NumbersDependOnTheSeedAndThePlaceAndAreUniform) {
  const std::array<uint64_t, 3> place = {1, 2, 3}, other = {1, 2, 4};
  EXPECT_EQ(uniformAt(7, place), uniformAt(7, place));
  EXPECT_NE(uniformAt(7, place), uniformAt(8, place));
  EXPECT_NE(uniformAt(7, place), uniformAt(7, other));
  double sum = 0, squares = 0;
  constexpr uint64_t kDraws = 100'000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const std::array<uint64_t, 3> at = {i / 1000, 5, i % 1000};
    const double u = uniformAt(1, at);
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u, squares += u * u;
  }
  // The mean of n uniform numbers has a deviation of sqrt(1 / 12n), 0.0009 here.
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
}

} // namespace
} // namespace lmc
