// Packing against its statement and against brute force.
#include "compiler/algorithms/Packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace lmc;

namespace {

PackingProblem randomProblem(std::mt19937 &random, size_t count, int64_t moments,
                             uint64_t alignment) {
  PackingProblem problem;
  problem.alignment = alignment;
  for (size_t i = 0; i < count; ++i) {
    int64_t a = int64_t(random() % uint64_t(moments)), b = int64_t(random() % uint64_t(moments));
    problem.buffers.push_back({1 + random() % 9, std::min(a, b), std::max(a, b)});
  }
  return problem;
}

// The smallest arena, by placing buffers in every order, each as low as it goes. Some
// order gives an optimal packing: sort one by offset and lower each buffer in turn.
uint64_t optimum(const PackingProblem &problem) {
  std::vector<size_t> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), size_t(0));
  uint64_t best = UINT64_MAX;
  do {
    std::vector<uint64_t> offsets(order.size());
    std::vector<size_t> placed;
    uint64_t bytes = 0;
    for (size_t buffer : order) {
      const PackingBuffer &current = problem.buffers[buffer];
      uint64_t offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t other : placed) {
          const PackingBuffer &o = problem.buffers[other];
          if (o.first <= current.last && current.first <= o.last &&
              offset < offsets[other] + o.bytes && offsets[other] < offset + current.bytes) {
            offset = offsets[other] + o.bytes;
            moved = true;
          }
        }
      }
      offsets[buffer] = offset;
      placed.push_back(buffer);
      bytes = std::max(bytes, offset + current.bytes);
    }
    best = std::min(best, bytes);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Packing, SolutionsOfRandomProblemsHold) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    PackingProblem problem = randomProblem(random, 1 + random() % 60, 40, 1u << (random() % 7));
    ASSERT_EQ(problem.check(), "");
    PackingSolution solution = pack(problem);
    EXPECT_EQ(solution.verify(problem), "") << "round " << round;
    EXPECT_GE(solution.bytes, problem.lowerBound()) << "round " << round;
  }
}

TEST(Packing, IsNearTheOptimumOfSmallProblems) {
  std::mt19937 random(2);
  double worst = 1.0;
  int optimal = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    PackingProblem problem = randomProblem(random, 6, 8, 1);
    uint64_t best = optimum(problem), found = pack(problem).bytes;
    ASSERT_GE(found, best) << "no packing can be smaller than the optimum, round " << round;
    ASSERT_LE(problem.lowerBound(), best) << "the bound is no bound, round " << round;
    optimal += found == best;
    worst = std::max(worst, double(found) / double(best));
  }
  std::printf("optimal in %d of %d, worst %.3f times the optimum\n", optimal, kRounds, worst);
  EXPECT_GE(optimal, kRounds * 9 / 10);
  EXPECT_LE(worst, 1.25);
}

TEST(Packing, BuffersThatNeverMeetShareBytes) {
  PackingProblem problem{{{100, 0, 1}, {100, 2, 3}, {100, 4, 5}}, 64};
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.bytes, 128u);
  EXPECT_EQ(solution.offsets, (std::vector<uint64_t>{0, 0, 0}));
}

TEST(Packing, VerifyFindsOverlap) {
  PackingProblem problem{{{100, 0, 2}, {100, 2, 3}}, 64};
  PackingSolution solution = pack(problem);
  solution.offsets[1] = solution.offsets[0] + 64;
  solution.bytes = 1024;
  EXPECT_NE(solution.verify(problem), "");
}

TEST(Packing, VerifyFindsMisalignmentAndOverflow) {
  PackingProblem problem{{{100, 0, 2}}, 64};
  PackingSolution solution = pack(problem);
  solution.offsets[0] = 8;
  EXPECT_NE(solution.verify(problem), "");
  solution.offsets[0] = 64;
  solution.bytes = 128;
  EXPECT_NE(solution.verify(problem), "");
}

TEST(Packing, CheckRefusesIllFormedProblems) {
  EXPECT_NE((PackingProblem{{{8, 3, 2}}, 64}.check()), "");
  EXPECT_NE((PackingProblem{{{0, 0, 1}}, 64}.check()), "");
  EXPECT_NE((PackingProblem{{{8, 0, 1}}, 48}.check()), "");
}

} // namespace
