#include "tools/lmc-run/check/MeasurePairs.h"

#include <gtest/gtest.h>

#include <functional>

using namespace lmc;
using Ranks = std::vector<int>;

namespace {

constexpr double kBandwidth = 1e9;

// All pairs across nodes, of which `divisor` returns by what their bandwidth is divided.
std::vector<PairSpeed> acrossNodes(int nodes, int perNode,
                                   const std::function<double(int a, int b)> &divisor) {
  std::vector<PairSpeed> pairs;
  for (int a = 0; a < nodes; ++a)
    for (int b = a + 1; b < nodes; ++b)
      for (int place = 0; place < perNode; ++place) {
        const int first = a * perNode + place, second = b * perNode + place;
        // Those of a real network differ by some percent.
        const double bandwidth = kBandwidth * (1 + 0.01 * ((first * 7 + second * 3) % 10));
        pairs.push_back({first, second, 5e-5, bandwidth / divisor(first, second)});
      }
  return pairs;
}

TEST(SlowLinks, NothingIsSlowAmongEquals) {
  for (int nodes : {1, 2, 3, 8})
    EXPECT_TRUE(slowLinks(acrossNodes(nodes, 4, [](int, int) { return 1; }), 4).empty());
  EXPECT_TRUE(slowLinks({}, 1).empty());
}

TEST(SlowLinks, ALinkThatIsSlowForBothOfItsEndsAlone) {
  for (int nodes : {3, 4, 9}) {
    auto slow =
        slowLinks(acrossNodes(nodes, 1, [](int a, int b) { return a == 0 && b == 2 ? 10 : 1; }), 1);
    ASSERT_EQ(slow.size(), 1u) << nodes;
    EXPECT_EQ(slow[0].from, Ranks{0});
    EXPECT_EQ(slow[0].to, Ranks{2});
    EXPECT_NEAR(slow[0].seconds / slow[0].usual, 10, 2);
  }
}

TEST(SlowLinks, ARankThatIsSlowWithAllOthers) {
  for (int nodes : {3, 4, 9}) { // of 3 or 4 nodes, half of all pairs or more are slow
    auto slow =
        slowLinks(acrossNodes(nodes, 1, [](int a, int b) { return a == 1 || b == 1 ? 10 : 1; }), 1);
    ASSERT_EQ(slow.size(), 1u) << nodes;
    EXPECT_EQ(slow[0].from, Ranks{1});
    EXPECT_TRUE(slow[0].to.empty());
  }
}

TEST(SlowLinks, RanksOfANodeAreNamedTogether) {
  auto slow = slowLinks(
      acrossNodes(4, 2, [](int a, int b) { return a / 2 == 3 || b / 2 == 3 ? 4 : 1; }), 2);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].from, (Ranks{6, 7}));
  slow = slowLinks(acrossNodes(4, 2, [](int a, int b) { return a / 2 == 0 && b / 2 == 1 ? 4 : 1; }),
                   2);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].from, (Ranks{0, 1}));
  EXPECT_EQ(slow[0].to, (Ranks{2, 3}));
}

TEST(SlowLinks, OneAdapterOfTwoNodes) {
  auto slow = slowLinks(acrossNodes(2, 4, [](int a, int) { return a == 2 ? 10 : 1; }), 4);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].from, Ranks{2});
  EXPECT_EQ(slow[0].to, Ranks{6});
}

TEST(SlowLinks, ALatencyCountsAsMuchAsItDelaysAMegabyte) {
  std::vector<PairSpeed> pairs = acrossNodes(4, 1, [](int, int) { return 1; });
  pairs[0].latency = 5e-4; // of 1.05 ms in all
  EXPECT_TRUE(slowLinks(pairs, 1).empty());
  pairs[0].latency = 2e-3;
  EXPECT_EQ(slowLinks(pairs, 1).size(), 1u);
}

} // namespace
