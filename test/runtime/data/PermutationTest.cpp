#include "runtime/data/Permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using namespace lmc;

namespace {

std::vector<uint64_t> images(uint64_t size, uint64_t seed, uint64_t epoch) {
  Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> result(size);
  for (uint64_t i = 0; i < size; ++i)
    result[i] = permutation(i);
  return result;
}

TEST(PermutationTest, IsABijectionOfEverySize) {
  std::vector<uint64_t> sizes{4095, 4096, 4097, 65536, 100003};
  for (uint64_t size = 1; size <= 300; ++size)
    sizes.push_back(size);
  for (uint64_t size : sizes) {
    std::vector<bool> seen(size);
    for (uint64_t image : images(size, 42, size % 3)) {
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << size;
      seen[image] = true;
    }
  }
}

TEST(PermutationTest, StaysBelowHugeSizes) {
  for (uint64_t size : {(uint64_t(1) << 40) + 1, (uint64_t(1) << 62) + 5, UINT64_MAX}) {
    Permutation permutation(size, 1, 2);
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_LT(permutation(i), size);
      EXPECT_LT(permutation(size - 1 - i), size);
    }
  }
}

// Two independent random permutations agree in one place on average, whatever the size.
TEST(PermutationTest, DiffersPerEpochAndSeed) {
  auto agreements = [](const std::vector<uint64_t> &a, const std::vector<uint64_t> &b) {
    int count = 0;
    for (size_t i = 0; i < a.size(); ++i)
      count += a[i] == b[i];
    return count;
  };
  std::vector<uint64_t> identity(1000);
  for (uint64_t i = 0; i < 1000; ++i)
    identity[i] = i;
  for (uint64_t key = 0; key < 20; ++key) {
    std::vector<uint64_t> base = images(1000, key, 0);
    EXPECT_LT(agreements(base, identity), 12);
    EXPECT_LT(agreements(base, images(1000, key, 1)), 12);
    EXPECT_LT(agreements(base, images(1000, key + 1, 0)), 12);
  }
}

// The same samples in the same order on every machine and in every later version: a
// checkpoint's run goes on in this order.
TEST(PermutationTest, IsTheSameForEver) {
  EXPECT_EQ(images(10, 1, 0), (std::vector<uint64_t>{9, 7, 5, 2, 3, 4, 0, 8, 1, 6}));
}

// Place and image are uncorrelated, and so are the images of neighbours.
TEST(PermutationTest, LooksRandom) {
  constexpr uint64_t kSize = 20000;
  std::vector<uint64_t> image = images(kSize, 7, 3);
  const double mean = (kSize - 1) / 2.0, variance = (double(kSize) * kSize - 1) / 12;
  double place = 0, neighbour = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i) {
    place += (i - mean) * (image[i] - mean);
    neighbour += (image[i] - mean) * (image[i + 1] - mean);
  }
  // The standard deviation of either is 1 / sqrt(kSize).
  EXPECT_LT(std::abs(place / variance / kSize), 4 / std::sqrt(kSize));
  EXPECT_LT(std::abs(neighbour / variance / kSize), 4 / std::sqrt(kSize));
}

// On a few elements every arrangement occurs about equally often.
TEST(PermutationTest, IsFairOnFewElements) {
  std::vector<int> counts(64);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    std::vector<uint64_t> image = images(3, seed, 0);
    ++counts[image[0] * 16 + image[1] * 4 + image[2]];
  }
  for (int arrangement : {0 * 16 + 1 * 4 + 2, 0 * 16 + 2 * 4 + 1, 1 * 16 + 0 * 4 + 2,
                          1 * 16 + 2 * 4 + 0, 2 * 16 + 0 * 4 + 1, 2 * 16 + 1 * 4 + 0})
    EXPECT_NEAR(counts[arrangement], 1000, 5 * std::sqrt(1000));
}

} // namespace
