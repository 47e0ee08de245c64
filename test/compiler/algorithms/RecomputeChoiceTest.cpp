// The choice of options per layer against all choices.
#include "compiler/algorithms/RecomputeChoice.h"

#include "test/Draws.h"
#include "test/compiler/algorithms/FaultOf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

using namespace lmc;

namespace {

RecomputeChoiceProblem randomProblem(std::mt19937 &random, size_t mostLayers) {
  RecomputeChoiceProblem problem;
  size_t kinds = 1 + random() % 3;
  bool related = random() % 2; // less kept takes more seconds and more transient bytes
  for (size_t kind = 0; kind < kinds; ++kind) {
    std::vector<LayerOption> options(1 + random() % 5);
    for (LayerOption &option : options) {
      option.keptBytes = random() % 12;
      option.transientBytes = random() % 20;
      option.seconds = double(random() % 12);
      if (related) {
        option.transientBytes = 12 - option.keptBytes + random() % 4;
        option.seconds = double(12 - option.keptBytes + random() % 3);
      }
    }
    problem.kinds.push_back(options);
  }
  for (size_t layers = random() % (mostLayers + 1); layers > 0; --layers)
    problem.layers.push_back(int(random() % kinds));
  problem.fixedBytes = random() % 5;
  problem.headAndLossBytes = random() % 20;
  return problem;
}

// The least seconds for each peak that some choice has.
std::map<uint64_t, double> everyChoice(const RecomputeChoiceProblem &problem) {
  std::map<uint64_t, double> fastest;
  std::vector<size_t> options(problem.layers.size());
  while (true) {
    uint64_t held = problem.fixedBytes, peak = 0;
    double seconds = 0;
    for (size_t l = 0; l < options.size(); ++l) {
      const LayerOption &option = problem.kinds[size_t(problem.layers[l])][options[l]];
      held += option.keptBytes;
      peak = std::max(peak, held + option.transientBytes);
      seconds += option.seconds;
    }
    peak = std::max(peak, held + problem.headAndLossBytes);
    auto [entry, isNew] = fastest.try_emplace(peak, seconds);
    entry->second = std::min(entry->second, seconds);
    size_t l = 0;
    while (l < options.size() && ++options[l] == problem.kinds[size_t(problem.layers[l])].size())
      options[l++] = 0;
    if (l == options.size())
      return fastest;
  }
}

// The least seconds, then the least peak within a budget.
std::optional<std::pair<double, uint64_t>> optimum(const std::map<uint64_t, double> &choices,
                                                   uint64_t budget) {
  std::optional<std::pair<double, uint64_t>> best;
  for (auto [peak, seconds] : choices)
    if (peak <= budget && (!best || seconds < best->first))
      best = {seconds, peak};
  return best;
}

// A model: equal layers whose options are those of a block, bytes in whole tokens.
RecomputeChoiceProblem model(std::mt19937 &random, size_t layers, size_t options) {
  RecomputeChoiceProblem problem;
  problem.kinds.resize(1);
  uint64_t kept = 0, transient = 200 * 4096 * 256;
  double seconds = 9e-3;
  for (size_t option = 0; option < options; ++option) {
    problem.kinds[0].push_back({kept, transient, seconds});
    kept += (1 + random() % 40) * 4096 * 256;
    transient -= random() % 20 * 4096 * 256;
    seconds *= 0.3 + 0.6 * double(random()) / double(random.max());
  }
  problem.kinds[0].back().seconds = 0;
  problem.layers.assign(layers, 0);
  problem.fixedBytes = uint64_t(20) << 30;
  problem.headAndLossBytes = uint64_t(3) << 30;
  return problem;
}

TEST(RecomputeChoice, IsTheBestOfAllChoicesOfDrawnModelsAtEveryBudget) {
  const int64_t count = test::drawCount(600);
  std::mt19937 random(1);
  int none = 0, some = 0;
  for (int64_t round = 0; round < count; ++round) {
    RecomputeChoiceProblem problem = randomProblem(random, 5);
    ASSERT_EQ(faultOf(problem.check()), "");
    auto choices = everyChoice(problem);
    for (uint64_t budget = 0; budget <= choices.rbegin()->first + 1; ++budget) {
      auto best = optimum(choices, budget);
      auto found = chooseRecompute(problem, budget);
      ASSERT_EQ(best.has_value(), found.has_value()) << "round " << round << ", " << budget;
      (found ? some : none)++;
      if (!found)
        continue;
      EXPECT_EQ(faultOf(found->verify(problem)), "") << "round " << round << ", budget " << budget;
      EXPECT_EQ(found->seconds, best->first) << "round " << round << ", budget " << budget;
      EXPECT_EQ(found->peakBytes, best->second) << "round " << round << ", budget " << budget;
      EXPECT_EQ(found->boundSeconds, found->seconds);
    }
  }
  EXPECT_GT(none, 1000);
  EXPECT_GT(some, 1000);
}

// Many layers: the bounds cut nearly everything, and cut nothing that is needed. The
// reference keeps, layer by layer from the last, the least seconds for each need.
TEST(RecomputeChoice, IsTheBestOfAllChoicesOfManyDrawnLayers) {
  const int64_t count = test::drawCount(150);
  std::mt19937 random(2);
  for (int64_t round = 0; round < count; ++round) {
    RecomputeChoiceProblem problem = randomProblem(random, 40);
    std::map<uint64_t, double> needs = {{problem.headAndLossBytes, 0}};
    for (size_t l = problem.layers.size(); l-- > 0;) {
      std::map<uint64_t, double> before;
      for (auto [need, seconds] : needs)
        for (const LayerOption &option : problem.kinds[size_t(problem.layers[l])]) {
          double time = seconds + option.seconds;
          uint64_t more = option.keptBytes + std::max(option.transientBytes, need);
          auto [entry, isNew] = before.try_emplace(more, time);
          entry->second = std::min(entry->second, time);
        }
      needs = before;
    }
    std::map<uint64_t, double> choices;
    for (auto [need, seconds] : needs)
      choices[problem.fixedBytes + need] = seconds;
    uint64_t least = choices.begin()->first, most = choices.rbegin()->first;
    for (uint64_t i = 0; i <= 10; ++i) {
      uint64_t budget = least + (most - least) * i / 10;
      auto found = chooseRecompute(problem, budget);
      ASSERT_TRUE(found);
      EXPECT_EQ(faultOf(found->verify(problem)), "") << "round " << round;
      EXPECT_EQ(std::pair(found->seconds, found->peakBytes), optimum(choices, budget))
          << "round " << round << ", budget " << budget;
    }
    EXPECT_FALSE(chooseRecompute(problem, least - 1));
  }
}

TEST(RecomputeChoice, IsProvenForModelsOf80LayersAndTheSameEachTime) {
  std::mt19937 random(3);
  for (int round = 0; round < 10; ++round) {
    RecomputeChoiceProblem problem = model(random, 80, 8);
    uint64_t most = chooseRecompute(problem, UINT64_MAX)->peakBytes;
    double before = 0;
    for (uint64_t tenths = 10; tenths > 0; --tenths) {
      auto found = chooseRecompute(problem, most * tenths / 10);
      auto again = chooseRecompute(problem, most * tenths / 10);
      ASSERT_EQ(found.has_value(), again.has_value());
      if (!found)
        continue;
      EXPECT_EQ(faultOf(found->verify(problem)), "");
      EXPECT_EQ(found->options, again->options);
      EXPECT_LE(found->peakBytes, most * tenths / 10);
      EXPECT_GE(found->seconds, before) << "a smaller budget saves no seconds";
      EXPECT_EQ(found->boundSeconds, found->seconds);
      before = found->seconds;
      size_t runs = 1;
      for (size_t l = 1; l < 80; ++l)
        runs += found->options[l] != found->options[l - 1];
      EXPECT_LE(runs, 8u) << "equal layers stand in runs";
    }
  }
}

// Every option costs the same per byte and bytes are odd numbers: filling the budget is a
// subset sum that no bound cuts short.
TEST(RecomputeChoice, TellsHowFarItMayBeFromTheFastest) {
  std::mt19937 random(4);
  RecomputeChoiceProblem problem;
  problem.kinds.resize(1);
  for (unsigned option = 0; option < 8; ++option) {
    uint64_t kept = 300'000'000 - option * 40'000'000 - random() % 1'000'000;
    problem.kinds[0].push_back({kept, 0, 1e-12 * double(300'000'000 - kept)});
  }
  problem.layers.assign(80, 0);
  uint64_t most = chooseRecompute(problem, UINT64_MAX)->peakBytes;
  auto found = chooseRecompute(problem, most / 2);
  ASSERT_TRUE(found);
  EXPECT_EQ(faultOf(found->verify(problem)), "");
  EXPECT_LE(found->peakBytes, most / 2);
  EXPECT_LT(found->boundSeconds, found->seconds);
  EXPECT_GT(found->boundSeconds, found->seconds * 0.99);
  EXPECT_GE(found->boundSeconds, 1e-12 * double(80 * 300'000'000ull - most / 2) * (1 - 1e-9))
      << "what a full budget would leave to make again";
  EXPECT_EQ(chooseRecompute(problem, most / 2)->options, found->options);
}

TEST(RecomputeChoice, ChoicesOfDrawnModelsGoFromTheSmallestPeakToTheFastest) {
  const int64_t count = test::drawCount(300);
  std::mt19937 random(5);
  for (int64_t round = 0; round < count; ++round) {
    RecomputeChoiceProblem problem = randomProblem(random, 5);
    auto choices = everyChoice(problem);
    int steps = int(random() % 6);
    std::vector<uint64_t> budgets;
    for (unsigned more = random() % 3; more > 0; --more)
      budgets.push_back(random() % (choices.rbegin()->first + 2));
    std::vector<RecomputeChoice> list = recomputeChoices(problem, steps, budgets);
    ASSERT_FALSE(list.empty());
    for (size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(faultOf(list[i].verify(problem)), "") << "round " << round;
      if (i > 0) {
        EXPECT_GT(list[i].seconds, list[i - 1].seconds) << "round " << round;
        EXPECT_LT(list[i].peakBytes, list[i - 1].peakBytes) << "round " << round;
      }
    }
    auto contains = [&](uint64_t budget) {
      auto best = optimum(choices, budget);
      return !best || std::any_of(list.begin(), list.end(), [&](const auto &choice) {
        return choice.seconds == best->first && choice.peakBytes == best->second;
      });
    };
    uint64_t least = choices.begin()->first, most = optimum(choices, UINT64_MAX)->second;
    EXPECT_EQ(list.front().peakBytes, most) << "round " << round;
    EXPECT_EQ(list.back().peakBytes, least) << "round " << round;
    for (uint64_t budget : budgets)
      EXPECT_TRUE(contains(budget)) << "round " << round << ", budget " << budget;
    for (int i = 0; i <= steps + 1; ++i)
      EXPECT_TRUE(contains(least + (most - least) * uint64_t(i) / uint64_t(steps + 1)))
          << "round " << round << ", step " << i;
  }
}

TEST(RecomputeChoice, TransientsCountWhereTheyStand) {
  // Two layers that keep 10 or recompute all with 25 in addition; head and loss need 5.
  RecomputeChoiceProblem problem{{{{10, 0, 0}, {0, 25, 1}}}, {0, 0}, 100, 5};
  EXPECT_EQ(chooseRecompute(problem, 125)->options, (std::vector<int>{0, 0}));
  EXPECT_EQ(chooseRecompute(problem, 125)->peakBytes, 125u) << "at the start of the backward pass";
  // 124: nothing fits, as 25 are transient wherever a layer is made again.
  EXPECT_FALSE(chooseRecompute(problem, 124));
  problem.headAndLossBytes = 20;
  // Making the first again holds max(25, 10 + 20), making the second 10 + max(25, 20).
  EXPECT_EQ(chooseRecompute(problem, 139)->options, (std::vector<int>{1, 0}));
  EXPECT_EQ(chooseRecompute(problem, 139)->peakBytes, 130u);
}

TEST(RecomputeChoice, NoLayersHoldTheTurn) {
  RecomputeChoiceProblem problem{{}, {}, 100, 5};
  ASSERT_EQ(faultOf(problem.check()), "");
  EXPECT_EQ(chooseRecompute(problem, 105)->peakBytes, 105u);
  EXPECT_FALSE(chooseRecompute(problem, 104));
  EXPECT_EQ(recomputeChoices(problem, 3, {50}).size(), 1u);
}

TEST(RecomputeChoice, VerifyFindsPlantedFaults) {
  RecomputeChoiceProblem problem{{{{10, 0, 0}, {0, 25, 1}}, {{3, 3, 3}}}, {0, 1, 0}, 100, 5};
  const RecomputeChoice right = *chooseRecompute(problem, 1000);
  ASSERT_EQ(faultOf(right.verify(problem)), "");
  auto fault = [&](auto plant) {
    RecomputeChoice wrong = right;
    plant(wrong);
    return faultOf(wrong.verify(problem));
  };
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.options.pop_back(); }), "chooses for 2 layers of 3");
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.options[1] = 1; }),
            "layer 1 takes an option that does not exist");
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.options[0] = -1; }),
            "layer 0 takes an option that does not exist");
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.options[2] = 1; }), "the peak is 138 bytes, not 128");
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.peakBytes -= 1; }), "the peak is 128 bytes, not 127");
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.seconds += 1; }),
            "the options do not take the seconds stated");
  EXPECT_EQ(fault([](RecomputeChoice &c) { c.boundSeconds += 1; }),
            "is faster than any choice can be");
}

TEST(RecomputeChoice, CheckRefusesIllFormedProblems) {
  const RecomputeChoiceProblem right{{{{10, 0, 0}, {0, 25, 1}}}, {0, 0}, 100, 5};
  ASSERT_EQ(faultOf(right.check()), "");
  auto fault = [&](auto plant) {
    RecomputeChoiceProblem wrong = right;
    plant(wrong);
    return faultOf(wrong.check());
  };
  using Problem = RecomputeChoiceProblem;
  EXPECT_NE(fault([](Problem &p) { p.kinds.push_back({}); }), "");
  EXPECT_NE(fault([](Problem &p) { p.layers[0] = 1; }), "");
  EXPECT_NE(fault([](Problem &p) { p.layers[0] = -1; }), "");
  EXPECT_NE(fault([](Problem &p) { p.kinds[0][0].seconds = -1; }), "");
  EXPECT_NE(fault([](Problem &p) { p.kinds[0][0].seconds = std::nan(""); }), "");
  EXPECT_NE(fault([](Problem &p) { p.kinds[0][0].seconds = 1801; }), "");
  EXPECT_NE(fault([](Problem &p) { p.fixedBytes = UINT64_MAX; }), "");
  EXPECT_NE(fault([](Problem &p) { p.headAndLossBytes = uint64_t(1) << 61; }), "");
  EXPECT_NE(fault([](Problem &p) { p.kinds[0][0].keptBytes = uint64_t(1) << 60; }), "");
  EXPECT_NE(fault([](Problem &p) { p.kinds[0][1].transientBytes = UINT64_MAX; }), "");
}

} // namespace
