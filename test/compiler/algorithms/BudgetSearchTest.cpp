// The fastest candidate within a budget: the same whatever was asked before, and monotone.
#include "compiler/algorithms/BudgetSearch.h"

#include "test/Draws.h"
#include "test/compiler/algorithms/FaultOf.h"

#include <gtest/gtest.h>

#include <random>

using namespace lmc;

namespace {

// Candidates in order of time with the bytes that their plans turn out to take.
struct CandidateList {
  std::vector<BudgetCandidate> candidates;
  std::vector<uint64_t> bytes;

  BudgetSearch search(int *measured = nullptr) const {
    return BudgetSearch(candidates, [this, measured](size_t candidate) -> std::optional<uint64_t> {
      if (measured)
        ++*measured;
      return bytes[candidate];
    });
  }

  // By looking at every candidate.
  std::optional<size_t> fastest(uint64_t budget) const {
    for (size_t i = 0; i < candidates.size(); ++i)
      if (std::max(candidates[i].boundBytes, bytes[i]) <= budget)
        return i;
    return std::nullopt;
  }
};

// Bytes fall with time, but for packings that turn out up to 10% above their bounds; some
// equal times. `loose`: bounds may be wrong.
CandidateList randomList(std::mt19937 &random, bool loose = false) {
  CandidateList list;
  size_t count = 1 + random() % 40;
  double seconds = 0;
  for (size_t i = 0; i < count; ++i) {
    seconds += double(random() % 3);
    uint64_t bound = 1000 + (count - i) * 37 + random() % 60;
    list.candidates.push_back({seconds, bound});
    list.bytes.push_back(bound * (100 + random() % 10) / 100 - (loose ? random() % 50 : 0));
  }
  return list;
}

} // namespace

TEST(BudgetSearch, FindsInDrawnListsWhatLookingAtEveryCandidateFinds) {
  const int64_t count = test::drawCount(300);
  std::mt19937 random(1);
  for (int64_t trial = 0; trial < count; ++trial) {
    CandidateList list = randomList(random, /*loose=*/trial % 2);
    BudgetSearch used = list.search(); // asked for many budgets in any order
    ASSERT_EQ(faultOf(used.check()), "");
    for (int i = 0; i < 30; ++i) {
      uint64_t budget = 900 + random() % 2500;
      EXPECT_EQ(list.search().fastest(budget), list.fastest(budget));
      EXPECT_EQ(used.fastest(budget), list.fastest(budget));
    }
  }
}

TEST(BudgetSearch, LessMemoryInDrawnListsIsNeverFasterAndNeverTakesMore) {
  const int64_t count = test::drawCount(300);
  std::mt19937 random(2);
  for (int64_t trial = 0; trial < count; ++trial) {
    CandidateList list = randomList(random);
    BudgetSearch search = list.search();
    size_t before = 0;
    uint64_t bytesBefore = UINT64_MAX;
    for (uint64_t budget = 4000; budget > 900; budget -= 7) {
      std::optional<size_t> candidate = search.fastest(budget);
      if (!candidate) {
        EXPECT_LT(budget, *search.bytes(*search.smallest()));
        break;
      }
      EXPECT_GE(*candidate, before);
      EXPECT_LE(list.bytes[*candidate], budget);
      EXPECT_LE(list.bytes[*candidate], bytesBefore);
      before = *candidate;
      bytesBefore = list.bytes[*candidate];
    }
  }
}

TEST(BudgetSearch, TheSmallestBudgetOfDrawnListsWorksAndOneByteLessDoesNot) {
  const int64_t count = test::drawCount(300);
  std::mt19937 random(3);
  for (int64_t trial = 0; trial < count; ++trial) {
    CandidateList list = randomList(random, /*loose=*/trial % 2);
    BudgetSearch search = list.search();
    std::optional<size_t> smallest = search.smallest();
    ASSERT_TRUE(smallest);
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < list.candidates.size(); ++i)
      least = std::min(least, std::max(list.candidates[i].boundBytes, list.bytes[i]));
    EXPECT_EQ(*search.bytes(*smallest), least);
    EXPECT_EQ(search.fastest(least), smallest);
    EXPECT_EQ(search.fastest(least - 1), std::nullopt);
  }
}

TEST(BudgetSearch, TightBoundsSpareMeasuring) {
  CandidateList list;
  for (uint64_t i = 0; i < 1000; ++i) {
    list.candidates.push_back({double(i), 100000 - i * 10});
    list.bytes.push_back(100000 - i * 10 + 5);
  }
  int measured = 0;
  BudgetSearch search = list.search(&measured);
  EXPECT_EQ(search.fastest(95000), 501u);
  EXPECT_EQ(measured, 2) << "the first candidate whose bound fits, and the next";
  search.fastest(95000);
  EXPECT_EQ(measured, 2) << "measured once only";
  measured = 0;
  search.smallest();
  EXPECT_EQ(measured, 1);
}

TEST(BudgetSearch, AFailureEndsIt) {
  int measured = 0;
  BudgetSearch search({{0, 10}, {1, 5}}, [&](size_t) -> std::optional<uint64_t> {
    ++measured;
    return std::nullopt;
  });
  EXPECT_EQ(search.fastest(100), std::nullopt);
  EXPECT_TRUE(search.failed());
  EXPECT_EQ(search.smallest(), std::nullopt);
  EXPECT_EQ(measured, 1);
}

TEST(BudgetSearch, IllFormed) {
  auto none = [](size_t) { return std::optional<uint64_t>(0); };
  EXPECT_EQ(faultOf(BudgetSearch({}, none).check()), "there is nothing to choose from");
  EXPECT_EQ(faultOf(BudgetSearch({{2, 0}, {1, 0}}, none).check()),
            "candidate 1 is faster than the one before it");
}

TEST(BudgetSearch, MeasuresNoMoreForTheSmallestThanItMay) {
  CandidateList list;
  for (size_t i = 0; i < 10; ++i) { // bounds that say nothing
    list.candidates.push_back({double(i), 1});
    list.bytes.push_back(100 - i);
  }
  int measured = 0;
  BudgetSearch search = list.search(&measured);
  EXPECT_EQ(search.smallest(4), 3u);
  EXPECT_EQ(measured, 4);
  EXPECT_EQ(search.smallest(), 9u);
}

TEST(BudgetSearch, SpareCandidatesAreMeasuredOnRequestOnly) {
  BudgetSearch search({{1, 10, true}, {1, 30}, {2, 5, true}, {3, 20}},
                      [](size_t candidate) { return uint64_t(40 - 10 * candidate); });
  EXPECT_EQ(search.fastest(100), 1u);
  EXPECT_EQ(search.fastest(25), 3u);
  EXPECT_EQ(search.smallest(), 3u);
  for (const BudgetSearch::Attempt &attempt : search.attempts())
    EXPECT_TRUE(attempt.candidate == 1 || attempt.candidate == 3);
  EXPECT_EQ(search.bytes(0), 40u);
}
