#include "runtime/step/NormalStream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lmc {
namespace {

// The known answers that come with the authors' own implementation (Random123, kat_vectors).
TEST(NormalStream, PhiloxGivesTheKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Box-Muller in the plainest form, with libm: the reference of the vectorised code.
double reference(uint64_t seed, uint64_t stream, uint64_t i) {
  uint64_t block = i / 4;
  auto words =
      philox4x32({uint32_t(block), uint32_t(block >> 32), uint32_t(stream), uint32_t(stream >> 32)},
                 {uint32_t(seed), uint32_t(seed >> 32)});
  size_t pair = i % 4 / 2 * 2;
  long double u = (words[pair] + 0.5L) / 4294967296.0L, v = words[pair + 1] / 4294967296.0L;
  long double radius = std::sqrt(-2 * std::log(u)), angle = 2 * M_PIl * v;
  return static_cast<double>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

TEST(NormalStream, MatchesBoxMullerByLibm) {
  const uint64_t seed = 0x123456789abcdef0, stream = 0xfedcba9876543210;
  for (uint64_t begin : {uint64_t{0}, uint64_t{1} << 34}) {
    std::vector<double> values(10000);
    fillNormal(seed, stream, begin, values.size(), 1.0, values.data());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], reference(seed, stream, begin + i), 2e-14) << i;
  }
}

TEST(NormalStream, AnElementDependsOnItsPositionAlone) {
  std::vector<float> whole(5000), part(5000);
  fillNormal(7, 9, 0, whole.size(), 0.02, whole.data());
  for (uint64_t begin : {0, 1, 2, 3, 255, 256, 257, 1023})
    for (uint64_t count : {1, 2, 3, 4, 5, 255, 256, 257, 1000}) {
      fillNormal(7, 9, begin, count, 0.02, part.data());
      for (uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(part[i], whole[begin + i]) << begin << " + " << i;
    }
}

TEST(NormalStream, SinglePrecisionIsTheRoundedDouble) {
  std::vector<float> single(1000);
  std::vector<double> wide(1000);
  fillNormal(7, 9, 3, single.size(), 0.02, single.data());
  fillNormal(7, 9, 3, wide.size(), 0.02, wide.data());
  for (size_t i = 0; i < single.size(); ++i)
    ASSERT_EQ(single[i], static_cast<float>(wide[i]));
}

// n = 2^22. Standard errors of the moments of a normal sample: mean 1/sqrt(n),
// variance sqrt(2/n), skewness sqrt(6/n), kurtosis sqrt(24/n); allowed are 4.5.
TEST(NormalStream, HasTheMomentsOfANormalDistribution) {
  const size_t n = size_t{1} << 22;
  std::vector<double> values(n);
  fillNormal(1, 2, 0, n, 1.0, values.data());
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (double z : values) {
    m1 += z;
    m2 += z * z;
    m3 += z * z * z;
    m4 += z * z * z * z;
  }
  const double root = std::sqrt(double(n));
  EXPECT_NEAR(m1 / n, 0, 4.5 / root);
  EXPECT_NEAR(m2 / n, 1, 4.5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(m3 / n, 0, 4.5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(m4 / n, 3, 4.5 * std::sqrt(96.0) / root);
}

// Kolmogorov-Smirnov: sqrt(n) D stays below 1.95 with probability 0.999.
TEST(NormalStream, HasTheDistributionFunctionOfANormalDistribution) {
  const size_t n = size_t{1} << 20;
  std::vector<double> values(n);
  fillNormal(3, 4, 0, n, 1.0, values.data());
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < n; ++i) {
    double expected = 0.5 * std::erfc(-values[i] / std::sqrt(2.0));
    distance = std::max(
        {distance, std::abs(expected - double(i) / n), std::abs(expected - double(i + 1) / n)});
  }
  EXPECT_LT(distance * std::sqrt(double(n)), 1.95);
}

// Correlations of independent samples have standard error 1/sqrt(n).
TEST(NormalStream, NeighboursStreamsAndSeedsAreUncorrelated) {
  const size_t n = size_t{1} << 20;
  std::vector<double> a(n + 8), stream(n), seed(n);
  fillNormal(5, 6, 0, a.size(), 1.0, a.data());
  fillNormal(5, 7, 0, n, 1.0, stream.data());
  fillNormal(6, 6, 0, n, 1.0, seed.data());
  auto correlation = [&](const double *x, const double *y) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i)
      sum += x[i] * y[i];
    return sum / n;
  };
  const double allowed = 4.5 / std::sqrt(double(n));
  for (size_t lag = 1; lag <= 8; ++lag)
    EXPECT_NEAR(correlation(a.data(), a.data() + lag), 0, allowed) << lag;
  EXPECT_NEAR(correlation(a.data(), stream.data()), 0, allowed);
  EXPECT_NEAR(correlation(a.data(), seed.data()), 0, allowed);
}

} // namespace
} // namespace lmc
