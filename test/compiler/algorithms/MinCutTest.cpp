// Minimum cuts against all cuts.
#include "compiler/algorithms/MinCut.h"

#include "test/Draws.h"
#include "test/compiler/algorithms/FaultOf.h"

#include <gtest/gtest.h>

#include <random>

using namespace lmc;

namespace {

MinCutProblem randomCutProblem(std::mt19937 &random) {
  MinCutProblem problem;
  problem.nodes = 2 + int(random() % 7);
  problem.source = int(random() % unsigned(problem.nodes));
  problem.sink = (problem.source + 1 + int(random() % unsigned(problem.nodes - 1))) % problem.nodes;
  // Small capacities tie often; wide ones need all the bits.
  bool wide = random() % 4 == 0;
  for (unsigned arc = random() % 25; arc > 0; --arc) {
    CutCapacity capacity = CutCapacity(random() % 6) << (wide ? 114 : 0);
    if (wide)
      capacity += random() % 3;
    if (random() % 8 == 0)
      capacity = kUncuttable;
    problem.arcs.push_back({int(random() % unsigned(problem.nodes)),
                            int(random() % unsigned(problem.nodes)), capacity});
  }
  return problem;
}

// The least capacity of any cut, and the nodes on the source's side of all that have it;
// nothing when every cut crosses an arc that may not be cut.
std::optional<std::pair<CutCapacity, unsigned>> optimum(const MinCutProblem &problem) {
  std::optional<std::pair<CutCapacity, unsigned>> best;
  for (unsigned sides = 0; sides < 1u << problem.nodes; ++sides) {
    if (!(sides >> problem.source & 1) || (sides >> problem.sink & 1))
      continue;
    CutCapacity cut = 0;
    bool allowed = true;
    for (const MinCutProblem::Arc &arc : problem.arcs)
      if ((sides >> arc.from & 1) && !(sides >> arc.to & 1)) {
        allowed &= arc.capacity != kUncuttable;
        cut += allowed ? arc.capacity : 0;
      }
    if (!allowed)
      continue;
    if (!best || cut < best->first)
      best = {cut, sides};
    else if (cut == best->first)
      best->second &= sides;
  }
  return best;
}

TEST(MinCut, IsTheSmallestOfAllCutsOfDrawnGraphsAndOfLeastSourceSide) {
  const int64_t count = test::drawCount(2000);
  std::mt19937 random(1);
  int none = 0;
  for (int64_t round = 0; round < count; ++round) {
    MinCutProblem problem = randomCutProblem(random);
    ASSERT_EQ(faultOf(problem.check()), "");
    auto best = optimum(problem);
    auto cut = minCut(problem);
    ASSERT_EQ(best.has_value(), cut.has_value()) << "round " << round;
    none += !cut;
    if (!cut)
      continue;
    EXPECT_EQ(faultOf(cut->verify(problem)), "") << "round " << round;
    EXPECT_TRUE(cut->capacity == best->first) << "round " << round;
    for (int node = 0; node < problem.nodes; ++node)
      EXPECT_EQ(cut->sourceSide[size_t(node)], bool(best->second >> node & 1))
          << "round " << round << ", node " << node;
  }
  EXPECT_GT(none, count / 20);
  EXPECT_LT(none, count / 2);
}

TEST(MinCut, TellsCapacitiesApartThatDifferInTheLastOf120Bits) {
  CutCapacity large = CutCapacity(1) << 120;
  MinCutProblem problem{3, 0, 2, {{0, 1, large + 1}, {1, 2, large}}};
  EXPECT_TRUE(minCut(problem)->capacity == large);
  EXPECT_TRUE(minCut(problem)->sourceSide[1]);
  std::swap(problem.arcs[0].capacity, problem.arcs[1].capacity);
  EXPECT_TRUE(minCut(problem)->capacity == large);
  EXPECT_FALSE(minCut(problem)->sourceSide[1]);
}

TEST(MinCut, WalksPathsAsLongAsTheGraph) {
  MinCutProblem problem{200000, 0, 199999, {}};
  for (int node = 0; node + 1 < problem.nodes; ++node)
    problem.arcs.push_back({node, node + 1, node == 1234 ? 5 : 6});
  auto cut = minCut(problem);
  EXPECT_EQ(faultOf(cut->verify(problem)), "");
  EXPECT_TRUE(cut->capacity == 5);
}

TEST(MinCut, VerifyFindsPlantedFaults) {
  // Two paths of two arcs, and an arc across; the cut is {0 -> 1, 2 -> 3}.
  MinCutProblem problem{
      4, 0, 3, {{0, 1, 2}, {1, 3, 9}, {0, 2, 9}, {2, 3, 3}, {2, 1, 0}, {2, 0, kUncuttable}}};
  const MinCut right = *minCut(problem);
  ASSERT_EQ(faultOf(right.verify(problem)), "");
  ASSERT_TRUE(right.capacity == 5);
  auto fault = [&](auto plant) {
    MinCut wrong = right;
    plant(wrong);
    return faultOf(wrong.verify(problem));
  };
  EXPECT_EQ(fault([](MinCut &cut) { cut.flow.pop_back(); }),
            "does not speak of every node and arc");
  EXPECT_EQ(fault([](MinCut &cut) { cut.sourceSide.push_back(true); }),
            "does not speak of every node and arc");
  EXPECT_EQ(fault([](MinCut &cut) { cut.sourceSide[0] = false; }), "does not part source and sink");
  EXPECT_EQ(fault([](MinCut &cut) { cut.sourceSide[3] = true; }), "does not part source and sink");
  EXPECT_EQ(fault([](MinCut &cut) { cut.flow[3] = 4; }),
            "the flow of arc 3 is outside its capacity");
  EXPECT_EQ(fault([](MinCut &cut) { cut.flow[3] = -1; }),
            "the flow of arc 3 is outside its capacity");
  EXPECT_EQ(fault([](MinCut &cut) { cut.flow[2] = 2; }), "flow is lost or made at node 2");
  EXPECT_EQ(fault([](MinCut &cut) { cut.sourceSide[2] = false; }),
            "the arcs cut do not have the capacity stated");
  EXPECT_EQ(fault([](MinCut &cut) { cut.capacity = 6; }),
            "the arcs cut do not have the capacity stated");
  EXPECT_EQ(fault([](MinCut &cut) { cut.flow[2] = cut.flow[3] = 2; }),
            "the flow does not prove the cut to be minimal");

  problem.arcs.push_back({1, 2, kUncuttable});
  EXPECT_EQ(fault([](MinCut &cut) {
              cut.flow.push_back(0);
              cut.sourceSide[1] = true;
              cut.sourceSide[2] = false;
            }),
            "cuts arc 6, which may not be cut");
}

TEST(MinCut, CheckRefusesIllFormedProblems) {
  CutCapacity half = CutCapacity(1) << 123;
  EXPECT_EQ(faultOf(MinCutProblem{2, 0, 1, {}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, 0, 0, {}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, 0, 2, {}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, -1, 1, {}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, 0, 1, {{0, 2, 1}}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, 0, 1, {{-1, 1, 1}}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, 0, 1, {{0, 1, -1}}}.check()), "");
  EXPECT_EQ(faultOf(MinCutProblem{2, 0, 1, {{0, 1, half}, {0, 1, kUncuttable}}}.check()), "");
  EXPECT_NE(faultOf(MinCutProblem{2, 0, 1, {{0, 1, half}, {0, 1, half}}}.check()), "");
}

} // namespace
