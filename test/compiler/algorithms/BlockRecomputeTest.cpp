// The options of a block against every set of ops that may be run again.
#include "compiler/algorithms/BlockRecompute.h"

#include "test/Draws.h"
#include "test/compiler/algorithms/FaultOf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace lmc;

namespace {

using Point = std::pair<int64_t, int64_t>; // bytes, seconds (whole, in these problems)

BlockRecomputeProblem randomProblem(std::mt19937 &random) {
  BlockRecomputeProblem problem;
  for (unsigned inputs = random() % 3; inputs > 0; --inputs)
    problem.values.push_back({random() % 10, -1});
  unsigned ops = random() % 9;
  for (unsigned u = 0; u < ops; ++u) {
    BlockRecomputeProblem::Op op;
    if (!problem.values.empty())
      for (unsigned reads = random() % 4; reads > 0; --reads)
        op.reads.push_back(int(random() % problem.values.size()));
    op.seconds = double(random() % 5);
    op.allowed = random() % 6 != 0;
    problem.ops.push_back(op);
    for (unsigned results = random() % 3; results > 0; --results)
      problem.values.push_back({random() % 10, int(u)});
  }
  for (size_t v = 0; v < problem.values.size(); ++v)
    if (random() % 3 == 0)
      problem.needed.push_back(int(v));
  std::shuffle(problem.needed.begin(), problem.needed.end(), random);
  return problem;
}

// Bytes and seconds of every choice of ops to run again that runs none in vain.
std::vector<Point> everyChoice(const BlockRecomputeProblem &problem) {
  std::vector<Point> points;
  for (unsigned again = 0; again < 1u << problem.ops.size(); ++again) {
    std::vector<bool> wanted(problem.values.size());
    for (int value : problem.needed)
      wanted[size_t(value)] = true;
    bool legal = true;
    Point point{0, 0};
    for (int u = int(problem.ops.size()) - 1; u >= 0; --u) {
      if (!(again >> u & 1))
        continue;
      bool useful = false;
      for (size_t v = 0; v < problem.values.size(); ++v)
        useful |= wanted[v] && problem.values[v].op == u;
      legal &= useful && problem.ops[size_t(u)].allowed;
      point.second += int64_t(problem.ops[size_t(u)].seconds);
      for (int value : problem.ops[size_t(u)].reads)
        wanted[size_t(value)] = true;
    }
    for (size_t v = 0; v < problem.values.size(); ++v)
      if (int op = problem.values[v].op; op >= 0 && wanted[v] && !(again >> op & 1))
        point.first += int64_t(problem.values[v].bytes);
    if (legal)
      points.push_back(point);
  }
  return points;
}

// Corners of the lower hull from the least seconds (then bytes) to the least bytes.
std::vector<Point> cornersOf(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](Point a, Point b) {
    return std::pair(a.second, a.first) < std::pair(b.second, b.first);
  });
  std::vector<Point> corners;
  for (Point c : points) {
    if (!corners.empty() && c.first >= corners.back().first)
      continue;
    while (corners.size() > 1) {
      Point a = corners[corners.size() - 2], b = corners.back();
      if ((a.first - b.first) * (c.second - b.second) > (b.first - c.first) * (b.second - a.second))
        break;
      corners.pop_back();
    }
    corners.push_back(c);
  }
  return corners;
}

TEST(BlockRecompute, OptionsOfDrawnBlocksAreTheCornersOfTheHullOfAllChoices) {
  const int64_t count = test::drawCount(3000);
  std::mt19937 random(1);
  size_t most = 0;
  for (int64_t round = 0; round < count; ++round) {
    BlockRecomputeProblem problem = randomProblem(random);
    ASSERT_EQ(faultOf(problem.check()), "");
    std::vector<Point> found;
    std::vector<int> before;
    for (const BlockRecomputeOption &option : blockRecomputeOptions(problem)) {
      EXPECT_EQ(faultOf(option.verify(problem)), "") << "round " << round;
      found.push_back({int64_t(option.keptBytes), int64_t(option.seconds)});
      EXPECT_TRUE(std::includes(option.recomputed.begin(), option.recomputed.end(), before.begin(),
                                before.end()))
          << "round " << round;
      before = option.recomputed;
    }
    EXPECT_EQ(found, cornersOf(everyChoice(problem))) << "round " << round;
    most = std::max(most, found.size());
  }
  EXPECT_GE(most, 5u) << "the problems are too easy";
}

TEST(BlockRecompute, OptionsAreTheSameEachTime) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    BlockRecomputeProblem problem = randomProblem(random);
    auto once = blockRecomputeOptions(problem), again = blockRecomputeOptions(problem);
    ASSERT_EQ(once.size(), again.size());
    for (size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].kept, again[i].kept);
      EXPECT_EQ(once[i].recomputed, again[i].recomputed);
    }
  }
}

// Every value needed, in a chain or a graph of realistic bytes and seconds: more
// options than a layer has, and costs that use many bits.
TEST(BlockRecompute, OptionsOfLargeBlocksAreStrictlyConvexAndNested) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    BlockRecomputeProblem problem;
    problem.values.push_back({1u << 30, -1});
    for (int u = 0; u < 120; ++u) {
      BlockRecomputeProblem::Op op;
      for (unsigned reads = 1 + random() % 3; reads > 0; --reads)
        op.reads.push_back(
            int(problem.values.size() - 1 - random() % std::min<size_t>(problem.values.size(), 6)));
      op.seconds = 1e-6 * double(1 + random() % 5000) / 3;
      problem.ops.push_back(op);
      problem.values.push_back({uint64_t(random()) << (random() % 4), u});
      if (random() % 2)
        problem.needed.push_back(int(problem.values.size()) - 1);
    }
    ASSERT_EQ(faultOf(problem.check()), "");
    auto options = blockRecomputeOptions(problem);
    EXPECT_GE(options.size(), 10u);
    EXPECT_LE(options.size(), problem.ops.size() + 1);
    EXPECT_EQ(options.front().seconds, 0);
    EXPECT_EQ(options.back().keptBytes, 0u) << "all can be made from the input";
    long double slope = 0;
    for (size_t i = 0; i < options.size(); ++i) {
      EXPECT_EQ(faultOf(options[i].verify(problem)), "");
      if (i == 0)
        continue;
      ASSERT_LT(options[i].keptBytes, options[i - 1].keptBytes);
      ASSERT_GT(options[i].seconds, options[i - 1].seconds);
      long double next = ((long double)options[i].seconds - options[i - 1].seconds) /
                         (long double)(options[i - 1].keptBytes - options[i].keptBytes);
      EXPECT_GT(next, slope) << "seconds per byte saved rise from option to option";
      slope = next;
      EXPECT_TRUE(std::includes(options[i].recomputed.begin(), options[i].recomputed.end(),
                                options[i - 1].recomputed.begin(),
                                options[i - 1].recomputed.end()));
    }
  }
}

// x -> norm -> gemm -> activation: the norm and the activation are free to remake
// only in the sense that their seconds are zero.
TEST(BlockRecompute, FirstOptionRecomputesWhatIsFreeAndSavesBytes) {
  BlockRecomputeProblem problem;
  problem.values = {{100, -1}, {100, 0}, {400, 1}, {400, 2}, {7, 3}};
  problem.ops = {{{0}, 0, true}, {{1}, 3, true}, {{2}, 0, true}, {{0}, 0, false}};
  problem.needed = {1, 2, 3, 4};
  auto options = blockRecomputeOptions(problem);
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].recomputed, (std::vector<int>{0, 2}));
  EXPECT_EQ(options[0].kept, (std::vector<int>{2, 4})) << "a draw that may not be repeated";
  EXPECT_EQ(options[1].recomputed, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(options[1].kept, (std::vector<int>{4}));
  EXPECT_EQ(options[1].seconds, 3);

  // An op of no seconds that would save no bytes is left alone.
  problem.values[1].bytes = 0;
  EXPECT_EQ(blockRecomputeOptions(problem)[0].recomputed, (std::vector<int>{2}));
}

TEST(BlockRecompute, TakesTheLargestProblemsThatCheckAdmits) {
  BlockRecomputeProblem problem;
  problem.values = {{(uint64_t(1) << 55), 0}, {(uint64_t(1) << 55) - 1, 1}};
  problem.ops = {{{}, 1800, true}, {{}, 1800, true}};
  problem.needed = {0, 1};
  ASSERT_EQ(faultOf(problem.check()), "");
  auto options = blockRecomputeOptions(problem);
  ASSERT_EQ(options.size(), 3u);
  EXPECT_EQ(options[1].kept, (std::vector<int>{1})) << "one byte tells them apart";
  EXPECT_EQ(options[2].seconds, 3600);
}

TEST(BlockRecompute, VerifyFindsPlantedFaults) {
  // 0 (input) -op0-> 1 -op1-> 2, 3; 4 by op 2, which may not run again.
  BlockRecomputeProblem problem;
  problem.values = {{10, -1}, {20, 0}, {30, 1}, {40, 1}, {50, 2}};
  problem.ops = {{{0}, 1, true}, {{1}, 2, true}, {{0}, 4, false}};
  problem.needed = {2, 4};
  ASSERT_EQ(faultOf(problem.check()), "");
  const BlockRecomputeOption right{{1, 4}, {1}, 70, 2};
  ASSERT_EQ(faultOf(right.verify(problem)), "");
  auto fault = [&](std::vector<int> kept, std::vector<int> recomputed, uint64_t bytes,
                   double seconds) {
    return faultOf(BlockRecomputeOption{kept, recomputed, bytes, seconds}.verify(problem));
  };
  EXPECT_EQ(fault({4, 1}, {1}, 70, 2), "the kept values are not in ascending order");
  EXPECT_EQ(fault({1, 4, 5}, {1}, 70, 2), "the kept values are not in ascending order");
  EXPECT_EQ(fault({1, 4}, {1, 1}, 70, 4), "the recomputed ops are not in ascending order");
  EXPECT_EQ(fault({1, 4}, {-1, 1}, 70, 2), "the recomputed ops are not in ascending order");
  EXPECT_EQ(fault({1}, {1, 2}, 20, 6), "op 2 may not be run again");
  EXPECT_EQ(fault({4}, {}, 50, 0), "value 2 is neither kept nor made again");
  EXPECT_EQ(fault({4}, {1}, 50, 2), "value 1 is neither kept nor made again");
  EXPECT_EQ(fault({0, 1, 4}, {1}, 80, 2), "value 0 is kept though it is an input");
  EXPECT_EQ(fault({1, 2, 4}, {}, 100, 0), "value 1 is kept though nobody reads it");
  EXPECT_EQ(fault({1, 4}, {0, 1}, 70, 3), "value 1 is kept though it is made again");
  EXPECT_EQ(fault({2, 4}, {0}, 80, 1), "op 0 is run again though nobody reads its results");
  EXPECT_EQ(fault({1, 4}, {1}, 71, 2), "the kept values have 70 bytes, not 71");
  EXPECT_EQ(fault({1, 4}, {1}, 70, 2.5), "the recomputed ops do not take the seconds stated");
}

TEST(BlockRecompute, CheckRefusesIllFormedProblems) {
  BlockRecomputeProblem right;
  right.values = {{10, -1}, {20, 0}, {30, 1}};
  right.ops = {{{0}, 1, true}, {{0, 1}, 2, true}};
  right.needed = {0, 2};
  ASSERT_EQ(faultOf(right.check()), "");
  auto fault = [&](auto plant) {
    BlockRecomputeProblem wrong = right;
    plant(wrong);
    return faultOf(wrong.check());
  };
  using Problem = BlockRecomputeProblem;
  EXPECT_NE(fault([](Problem &p) { p.values[1].op = 2; }), "");
  EXPECT_NE(fault([](Problem &p) { p.values[1].op = -2; }), "");
  EXPECT_NE(fault([](Problem &p) { p.values[1].bytes = UINT64_MAX; }), "");
  EXPECT_NE(fault([](Problem &p) { p.values[0].bytes = p.values[1].bytes = 1ull << 55; }), "");
  EXPECT_NE(fault([](Problem &p) { p.ops[0].seconds = -1; }), "");
  EXPECT_NE(fault([](Problem &p) { p.ops[0].seconds = std::nan(""); }), "");
  EXPECT_NE(fault([](Problem &p) { p.ops[0].seconds = 3599; }), "");
  EXPECT_NE(fault([](Problem &p) { p.ops[0].reads = {3}; }), "");
  EXPECT_NE(fault([](Problem &p) { p.ops[0].reads = {-1}; }), "");
  EXPECT_NE(fault([](Problem &p) { p.ops[0].reads = {1}; }), "");
  EXPECT_NE(fault([](Problem &p) { p.needed = {3}; }), "");
  EXPECT_NE(fault([](Problem &p) { p.needed = {-1}; }), "");
  EXPECT_NE(fault([](Problem &p) { p.needed = {2, 0, 2}; }), "");
}

} // namespace
