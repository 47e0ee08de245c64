#include "compiler/search/MicroBatchSearch.h"

#include <gtest/gtest.h>

#include <map>

using namespace lmc;

namespace {

// Plans with known rates; those up to `largest` fit.
struct Fake {
  std::map<int64_t, double> rates;
  int64_t largest = INT64_MAX;
  std::vector<int64_t> tried;

  std::optional<MicroBatchResult> search(int64_t perDevice) {
    return searchMicroBatch(perDevice, [&](int64_t size) -> std::optional<MicroBatchAttempt> {
      tried.push_back(size);
      if (!rates.count(size))
        return std::nullopt;
      return MicroBatchAttempt{size, uint64_t(100 * size), rates[size], size <= largest};
    });
  }
};

} // namespace

TEST(MicroBatchSearch, TheFastestDivisorThatFits) {
  Fake fake{{{1, 10}, {2, 19}, {3, 25}, {4, 24}, {6, 30}, {12, 40}}, 6, {}};
  std::optional<MicroBatchResult> found = fake.search(12);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->attempts[found->best].size, 6);
  EXPECT_EQ(fake.tried, (std::vector<int64_t>{1, 2, 3, 4, 6, 12}));
  fake.largest = 4;
  fake.tried.clear();
  found = fake.search(12);
  EXPECT_EQ(found->attempts[found->best].size, 3);
  EXPECT_EQ(fake.tried, (std::vector<int64_t>{1, 2, 3, 4, 6})) << "12 needs even more than 6";
}

TEST(MicroBatchSearch, OfEqualRatesTheSmaller) {
  Fake fake{{{1, 10}, {2, 20}, {4, 20}, {8, 20 * (1 + 1e-12)}}, INT64_MAX, {}};
  std::optional<MicroBatchResult> found = fake.search(8);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->attempts[found->best].size, 2);
}

TEST(MicroBatchSearch, NothingFits) {
  Fake fake{{{1, 10}, {2, 20}}, 0, {}};
  std::optional<MicroBatchResult> found = fake.search(2);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->attempts.size(), 1u);
  EXPECT_FALSE(found->attempts[found->best].fits);
  EXPECT_EQ(found->attempts[found->best].size, 1);
}

TEST(MicroBatchSearch, AFailureEndsIt) {
  Fake fake{{{1, 10}}, INT64_MAX, {}};
  EXPECT_FALSE(fake.search(4));
  EXPECT_EQ(fake.tried, (std::vector<int64_t>{1, 2}));
}
