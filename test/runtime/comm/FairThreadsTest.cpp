#include "runtime/comm/FairThreads.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace lmc;

namespace {

std::vector<int> cpus(int first, int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(FairThreads, RanksOfAHostDivideTheCpusThatAllMayUse) {
  const std::vector<RankCpus> ranks = {
      {"a", cpus(0, 16)}, {"a", cpus(0, 16)}, {"a", cpus(0, 16)}, {"b", cpus(0, 16)}};
  EXPECT_EQ(fairThreads(ranks, 0), 5);
  EXPECT_EQ(fairThreads(ranks, 2), 5);
  EXPECT_EQ(fairThreads(ranks, 3), 16);
}

TEST(FairThreads, ARankUsesAllCpusThatAreBoundToIt) {
  const std::vector<RankCpus> ranks = {{"a", cpus(0, 8)}, {"a", cpus(8, 8)}};
  EXPECT_EQ(fairThreads(ranks, 0), 8);
  EXPECT_EQ(fairThreads(ranks, 1), 8);
  EXPECT_EQ(fairThreads({{"a", cpus(0, 3)}, {"a", cpus(0, 3)}, {"a", cpus(0, 3)}}, 1), 1);
}

TEST(FairThreads, ThereIsAlwaysOne) {
  EXPECT_EQ(fairThreads({{"a", {0}}, {"a", {0}}}, 0), 1);
  EXPECT_EQ(fairThreads({{"a", {}}}, 0), 1);
}

} // namespace
