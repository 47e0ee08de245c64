#include "runtime/monitor/Guard.h"

#include "test/Draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>
#include <random>

namespace lmc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr uint64_t kVocab = 32000; // ln = 10.37
constexpr double kRate = 3e-4;

struct Step {
  double loss, norm, lr = kRate;
};
using Series = std::function<Step(int64_t step)>;

// A series of normal draws, of which each is a function of its step alone.
double draw(int64_t step, uint32_t seed) {
  std::mt19937_64 generator(static_cast<uint64_t>(step) * 1000003 + seed);
  return std::normal_distribution<double>()(generator);
}

// A run that learns as it should: from 10.4 to 2.5 nats.
Step healthy(int64_t step, uint32_t seed = 0) {
  double loss = 2.5 + 7.9 * std::exp(-static_cast<double>(step) / 80);
  return {
      loss + 0.04 * draw(step, 2 * seed),
      std::exp(1.5 * std::exp(-static_cast<double>(step) / 50) + 0.15 * draw(step, 2 * seed + 1))};
}

StepRecord record(int64_t step, const Step &values) {
  StepRecord result;
  result.step = step;
  result.loss = values.loss;
  result.gradNorm = values.norm;
  result.lr = values.lr;
  return result;
}

struct Seen {
  std::vector<std::string> warnings;
  int64_t divergedAt = 0, since = 0;
  std::string text;
};

// Shows the steps to `guard`, until the run has diverged.

Seen watch(Guard &guard, int64_t first, int64_t last, const Series &series) {
  Seen seen;
  for (int64_t step = first; step <= last; ++step) {
    Guard::Verdict verdict = guard.observe(record(step, series(step)));
    for (std::string &warning : verdict.warnings)
      seen.warnings.push_back(std::move(warning));
    if (verdict.divergence) {
      seen.divergedAt = step;
      seen.since = verdict.divergence->since;
      seen.text = verdict.divergence->text;
      break;
    }
  }
  return seen;
}

// Settings with which only spikes and divergences are judged.
GuardConfig plain(GuardConfig settings = {}) {
  const GuardConfig usual;
  if (settings.plateau == usual.plateau)
    settings.plateau = 0;
  if (settings.validation == usual.validation)
    settings.validation = 0;
  return settings;
}

Guard freshGuard(const GuardConfig &settings = {}) {
  Guard guard(plain(settings), kVocab, kRate);
  guard.expectFreshWeights();
  return guard;
}

Seen watch(int64_t steps, const Series &series) {
  Guard guard = freshGuard();
  return watch(guard, 1, steps, series);
}

TEST(Guard, SaysNothingOfARunThatLearns) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    Seen seen = watch(3000, [&](int64_t step) { return healthy(step, seed); });
    EXPECT_THAT(seen.warnings, IsEmpty()) << seed;
    EXPECT_EQ(seen.divergedAt, 0) << seed;
  }
}

// The loss jumps by `height` at step 1000 and falls back exponentially.
Series spike(double height, double steps) {
  return [=](int64_t step) {
    Step values = healthy(step);
    if (step >= 1000) {
      double left = std::exp(-static_cast<double>(step - 1000) / steps);
      values.loss += height * left;
      values.norm *= 1 + 9 * left;
    }
    return values;
  };
}

TEST(Guard, WarnsOnceOfASpikeThatRecoversAndSaysWhenItIsOver) {
  Seen seen = watch(3000, spike(3, 20));
  EXPECT_THAT(seen.warnings,
              ElementsAre(AllOf(StartsWith("step 1000: spike: loss 5.4"), HasSubstr(" is usual")),
                          AllOf(HasSubstr(": the spike since step 1000 is over: loss 2."),
                                HasSubstr("after at most 5.4"))));
  EXPECT_EQ(seen.divergedAt, 0);
}

TEST(Guard, WarnsOfASpikeOfTheGradientNormAlone) {
  Seen seen = watch(3000, [](int64_t step) {
    Step values = healthy(step);
    return step == 2000 ? Step{values.loss, 8 * values.norm} : values;
  });
  ASSERT_EQ(seen.warnings.size(), 2u);
  EXPECT_THAT(seen.warnings[0], StartsWith("step 2000: spike: "));
  EXPECT_THAT(seen.warnings[1], StartsWith("step 2001: the spike since step 2000 is over"));
}

// A sound run of small batches: losses and norms have exponential tails, as those of `lmc-run` at
// 512 tokens a step have (bench/results/spikes-2026-11-28.md).
Step ofSmallBatches(int64_t step, uint32_t seed) {
  std::mt19937_64 generator(static_cast<uint64_t>(step) * 1000003 + seed);
  const auto heavy = [&](double deviation, double tail) {
    double value = deviation * std::normal_distribution<double>()(generator);
    if (std::uniform_real_distribution<double>()(generator) < 0.03)
      value += std::exponential_distribution<double>(1 / tail)(generator);
    return value;
  };
  const double loss = heavy(0.08, 0.08), norm = heavy(0.15, 0.15);
  return {1.3 + loss, 0.9 * std::exp(norm)};
}

TEST(Guard, DrawnSoundRunsOfSmallBatchesHaveNoSpike) {
  const int64_t runs = test::drawCount(4), steps = 20000;
  int64_t high = 0; // steps that six deviations alone would call a spike
  size_t warnings = 0;
  for (int64_t seed = 0; seed < runs; ++seed) {
    Guard guard(plain(), kVocab, kRate);
    const Seen seen = watch(guard, 1, steps, [&](int64_t step) {
      const Step values = ofSmallBatches(step, uint32_t(seed));
      high += values.loss > 1.3 + 6 * 0.09 || std::log(values.norm / 0.9) > 6 * 0.17;
      return values;
    });
    warnings += seen.warnings.size();
  }
  EXPECT_LE(warnings, size_t(runs * steps / 400000)); // none with four runs
  EXPECT_GT(high, 2 * runs) << "the series has no tails";
}

TEST(Guard, DrawnSpikesInSmallBatchesAreFoundWithinTwoSteps) {
  const int64_t runs = test::drawCount(4), steps = 12000;
  int64_t planted = 0, found = 0, wrong = 0;
  for (int64_t seed = 0; seed < runs; ++seed)
    for (const auto &[loss, norm] : {std::pair(1.5, 1.0), {0.0, 8.0}, {2.0, 10.0}}) {
      Guard guard(plain(), kVocab, kRate);
      for (int64_t step = 1; step < steps; ++step) {
        Step values = ofSmallBatches(step, uint32_t(seed));
        const bool isPlanted = step >= 2000 && step % 1000 < 5;
        if (isPlanted) {
          values.loss += loss;
          values.norm *= norm;
        }
        planted += isPlanted && step % 1000 == 0;
        const Guard::Verdict verdict = guard.observe(record(step, values));
        if (verdict.spike)
          ++(isPlanted && step % 1000 <= 1 ? found : wrong);
      }
    }
  EXPECT_EQ(planted, runs * 30);
  EXPECT_LE(planted - found, planted / 200); // none with four runs
  EXPECT_LE(wrong, runs * 3 * steps / 400000);
}

TEST(Guard, OneHighStepIsNoSpikeAndTwoInARowAre) {
  const auto seen = [](int64_t steps) {
    return watch(3000, [=](int64_t step) {
      Step values = healthy(step);
      if (step >= 2000 && step < 2000 + steps)
        values.loss += 0.04 * 8.5; // above six deviations, and not far outside of the tail
      return values;
    });
  };
  EXPECT_THAT(seen(1).warnings, IsEmpty());
  EXPECT_THAT(seen(2).warnings, ElementsAre(StartsWith("step 2001: spike: "),
                                            StartsWith("step 2002: the spike since step 2000")));
}

TEST(Guard, ARisingValidationLossIsToldOnce) {
  Guard guard(GuardConfig{.plateau = 0, .validation = 0.2}, kVocab, kRate);
  std::vector<int64_t> told;
  const std::vector<double> losses = {5, 3, 2.5, 2.6, 2.9, 4, 16, 2.65, 2.55, 2.8, 2.4, 2.5};
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_FALSE(guard.observeValidation("other", int64_t(i), 3));
    Guard again(GuardConfig{.plateau = 0, .validation = 0.2}, kVocab, kRate);
    ASSERT_TRUE(again.restore(guard.state()));
    const auto rise = guard.observeValidation("", int64_t(i), losses[i]);
    EXPECT_EQ(bool(again.observeValidation("", int64_t(i), losses[i])), bool(rise));
    if (!rise)
      continue;
    told.push_back(int64_t(i));
    EXPECT_EQ(rise->lowest, 2.5);
    EXPECT_EQ(rise->step, 2);
    EXPECT_THAT(rise->text, HasSubstr("and its lowest was 2.500 after step 2"));
  }
  EXPECT_THAT(told, ElementsAre(4, 9));
  EXPECT_EQ(guard.bestStep(""), 10);
  guard.expectChange(); // of what is trained on
  EXPECT_EQ(guard.bestStep(""), 10);
  Guard silent(plain({.validation = 0}), kVocab, kRate);
  EXPECT_FALSE(silent.observeValidation("", 1, 2));
  EXPECT_FALSE(silent.observeValidation("", 2, 20));
}

TEST(Guard, DoesNotStopALossThatFallsBackOverHundredsOfSteps) {
  for (double steps : {100.0, 300.0, 700.0}) {
    Seen seen = watch(6000, spike(5, steps));
    EXPECT_EQ(seen.divergedAt, 0) << steps << seen.text;
    EXPECT_LE(seen.warnings.size(), 3u) << steps;
  }
}

TEST(Guard, ALossThatStaysHighHasDiverged) {
  Seen seen = watch(3000, [](int64_t step) {
    Step values = healthy(step);
    double rise = std::clamp(static_cast<double>(step - 1000) / 20, 0.0, 1.0);
    return Step{values.loss + rise * (4.5 + 0.5 * draw(step, 99)), values.norm};
  });
  // Quarters of 25 steps end at multiples of 25, and the first one that is high ends at 1025.
  EXPECT_EQ(seen.divergedAt, 1100);
  EXPECT_GE(seen.since, 1000);
  EXPECT_LE(seen.since, 1005);
  EXPECT_THAT(seen.text, AllOf(HasSubstr("diverged: since step " + std::to_string(seen.since)),
                               HasSubstr("more than 1 above its lowest level of 2.4"),
                               HasSubstr("mean of the last 25 step(s): ")));
}

TEST(Guard, FindsADivergenceThatCreepsUp) {
  Seen seen = watch(3000, [](int64_t step) {
    Step values = healthy(step);
    return Step{values.loss + 0.004 * static_cast<double>(std::max<int64_t>(step - 1000, 0)),
                values.norm};
  });
  EXPECT_GT(seen.divergedAt, 1250); // the loss is 1 higher from here on
  EXPECT_LE(seen.divergedAt, 1400);
}

// The first losses of a run of models/configs/demo.toml with a learning rate of 9.9, and others of
// the same mean and deviation.
TEST(Guard, FindsADivergenceFromTheFirstStepsOn) {
  const std::vector<double> first = {5.5,   8.7,   33.8,  55.7,  149.1,
                                     178.5, 390.7, 534.0, 610.1, 386.3};
  Guard guard(plain(), 256, 9.9);
  guard.expectFreshWeights();
  Seen seen = watch(guard, 1, 300, [&](int64_t step) {
    return Step{step <= 10 ? first[static_cast<size_t>(step - 1)] : 900 + 250 * draw(step, 3), 100,
                9.9};
  });
  EXPECT_THAT(seen.warnings, ElementsAre(StartsWith("step 2: spike: loss 8.700")));
  EXPECT_GE(seen.divergedAt, 100);
  EXPECT_LE(seen.divergedAt, 200);
  EXPECT_EQ(seen.since, 2);
}

TEST(Guard, ATransientAboveTheFirstLossIsNoDivergence) {
  Seen seen = watch(1000, [](int64_t step) {
    Step values = healthy(std::max<int64_t>(step - 60, 1));
    if (step < 60)
      values.loss += 2 * std::sin(M_PI * static_cast<double>(step) / 60);
    return values;
  });
  EXPECT_EQ(seen.divergedAt, 0);
  EXPECT_LE(seen.warnings.size(), 2u);
}

TEST(Guard, ASmallRiseForGoodBecomesTheUsual) {
  Seen seen = watch(3000, [](int64_t step) {
    Step values = healthy(step);
    return Step{values.loss + (step >= 1000 ? 0.6 : 0), values.norm};
  });
  EXPECT_THAT(seen.warnings,
              ElementsAre(StartsWith("step 1000: spike"),
                          StartsWith("step 1100: the spike since step 1000 is not over")));
  EXPECT_EQ(seen.divergedAt, 0);
}

TEST(Guard, ManySpikesAreReportedOnceAWindow) {
  Seen seen = watch(3005, [](int64_t step) {
    Step values = healthy(step);
    return step >= 1000 && step % 10 == 0 ? Step{values.loss + 2, values.norm} : values;
  });
  EXPECT_EQ(seen.warnings.size(), 2u * 21);
  EXPECT_THAT(seen.warnings[2], HasSubstr("is usual; 9 more since step 1000"));
}

TEST(Guard, TheFirstLossOfFreshWeightsIsComparedWithLnV) {
  for (double loss : {5.0, 15.0}) {
    auto series = [&](int64_t) { return Step{loss, 1}; };
    EXPECT_THAT(watch(1, series).warnings,
                ElementsAre(AllOf(StartsWith("step 1: the first loss is "),
                                  HasSubstr("far from ln(vocab_size) = 10.373"))));
    Guard other(plain(), kVocab, kRate); // weights that were trained before
    EXPECT_THAT(watch(other, 1, 1, series).warnings, IsEmpty());
  }
  EXPECT_THAT(watch(1, [](int64_t) { return Step{11.9, 1}; }).warnings, IsEmpty());
}

TEST(Guard, WarnsOfAPlateauFromTheStart) {
  auto flat = [](int64_t step, double lr) {
    return Step{10.4 + 0.03 * draw(step, 1), std::exp(0.1 * draw(step, 2)), lr};
  };
  auto plateau = ElementsAre(StartsWith("step 100: the loss has hardly fallen since the start"));
  EXPECT_THAT(watch(1000, [&](int64_t step) { return flat(step, kRate); }).warnings, plateau);
  // Not while the rate is zero or still low, and not of trained weights.
  EXPECT_THAT(watch(1000, [&](int64_t step) { return flat(step, 0); }).warnings, IsEmpty());
  EXPECT_THAT(
      watch(1000, [&](int64_t step) { return flat(step, kRate * double(step) / 3000); }).warnings,
      IsEmpty());
  Guard other(plain(), kVocab, kRate);
  EXPECT_THAT(watch(other, 1, 1000, [&](int64_t step) { return flat(step, kRate); }).warnings,
              IsEmpty());
}

TEST(Guard, ADeclaredChangeNeverStopsUnlessAllThatWasLearntIsLost) {
  auto rises = [](double by) {
    return [by](int64_t step) {
      Step values = healthy(step);
      return Step{values.loss + (step >= 1010 ? by : 0), values.norm};
    };
  };
  for (double by : {2.0, 5.0, 9.5}) {
    Guard guard = freshGuard();
    EXPECT_THAT(watch(guard, 1, 1000, rises(by)).warnings, IsEmpty());
    guard.expectChange();
    Seen seen = watch(guard, 1001, 2000, rises(by));
    EXPECT_EQ(seen.divergedAt != 0, 2.5 + by > std::log(kVocab) + 1) << by;
  }
}

TEST(Guard, AfterADivergenceOnlyAFurtherRiseCounts) {
  Guard guard = freshGuard();
  auto steps = [](int64_t step) {
    Step values = healthy(step);
    return Step{values.loss + (step >= 2000 ? 6.0 : step >= 1000 ? 3.0 : 0.0), values.norm};
  };
  EXPECT_EQ(watch(guard, 1, 1100, steps).divergedAt, 1100);
  EXPECT_EQ(watch(guard, 1101, 1999, steps).divergedAt, 0);
  EXPECT_EQ(watch(guard, 2000, 3000, steps).divergedAt, 2100);
}

TEST(Guard, TheSuspectStepsBeginWithTheSpike) {
  Guard guard = freshGuard();
  watch(guard, 1, 999, spike(4, 200));
  EXPECT_EQ(guard.suspectSince(), std::nullopt);
  watch(guard, 1000, 1100, spike(4, 200));
  EXPECT_EQ(guard.suspectSince(), 1000);
  watch(guard, 1101, 3000, spike(4, 200));
  EXPECT_EQ(guard.suspectSince(), std::nullopt);
}

TEST(Guard, StepsWithoutAFiniteValueOrAGradientDoNotEnterTheStatistics) {
  Guard guard = freshGuard();
  watch(guard, 1, 500, [](int64_t step) { return healthy(step); });
  const std::string before = guard.state();
  for (Step bad : {Step{NAN, 1}, Step{INFINITY, 1}, Step{2.5, NAN}, Step{2.5, INFINITY}}) {
    EXPECT_THAT(watch(guard, 501, 509, [&](int64_t) { return bad; }).warnings, SizeIs(9));
    watch(guard, 510, 510, [](int64_t) { return Step{0, 0}; }); // finite, and without a gradient
    EXPECT_EQ(guard.state(), before);
  }
  EXPECT_THAT(watch(guard, 511, 550, [&](int64_t) { return Step{0, 0}; }).warnings, IsEmpty());
  EXPECT_EQ(guard.state(), before);
}

TEST(Guard, TenStepsInARowThatAreNotFiniteEndARunUnderEveryActionAndOverARestart) {
  const Series bad = [](int64_t) { return Step{2.5, NAN}; };
  for (const char *action : {"stop", "warn", "off"}) {
    Guard first = freshGuard({.action = action});
    EXPECT_EQ(watch(first, 1, 6, bad).divergedAt, 0);
    Guard second(plain({.action = action}), kVocab, kRate);
    ASSERT_TRUE(second.restore(first.state()));
    Guard::Verdict verdict;
    for (int64_t step = 7; step <= 10; ++step)
      verdict = second.observe(record(step, bad(step)));
    ASSERT_TRUE(verdict.divergence) << action;
    EXPECT_TRUE(verdict.divergence->lasting);
    EXPECT_EQ(verdict.divergence->since, 1);
  }
}

// Trains as a device does that compares with the limits: it leaves out steps of `series` above
// them. Returns the steps that were left out.
std::vector<int64_t> leftOut(Guard &guard, int64_t first, int64_t last, const Series &series) {
  std::vector<int64_t> steps;
  for (int64_t step = first; step <= last; ++step) {
    StepRecord values = record(step, series(step));
    const StepLimits limits = guard.limitsOf(step);
    EXPECT_EQ(static_cast<double>(static_cast<float>(limits.loss)), limits.loss);
    EXPECT_EQ(static_cast<double>(static_cast<float>(limits.norm)), limits.norm);
    if (values.loss > limits.loss || values.gradNorm > limits.norm) {
      values.skipped = SkipReason::Spike;
      steps.push_back(step);
    }
    guard.observe(values);
  }
  return steps;
}

Step withSpikes(int64_t step) {
  Step values = healthy(step);
  if (step == 300 || step == 301)
    values.loss += 3;
  if (step == 400)
    values.norm *= 30;
  return values;
}

TEST(Guard, StepsOfASpikeAreAboveTheirLimitsAndNoOthers) {
  Guard guard = freshGuard({.onSpike = "skip"});
  EXPECT_THAT(leftOut(guard, 1, 600, withSpikes), ElementsAre(300, 301, 400));
}

TEST(Guard, ThereAreLimitsOnlyIfSpikesAreSkippedAndTheStatisticsAreKnown) {
  for (const char *action : {"warn", "stop"}) {
    Guard guard = freshGuard({.onSpike = action});
    EXPECT_THAT(leftOut(guard, 1, 299, withSpikes), IsEmpty());
    EXPECT_EQ(guard.limitsOf(300).loss, INFINITY);
  }
  Guard guard = freshGuard({.onSpike = "skip", .window = 100});
  leftOut(guard, 1, 49, withSpikes);
  EXPECT_EQ(guard.limitsOf(50).loss, INFINITY);
  leftOut(guard, 50, 50, withSpikes);
  EXPECT_EQ(guard.limitsOf(51).loss, INFINITY);
  EXPECT_LT(guard.limitsOf(52).loss, INFINITY);
}

// The host may know step s - 1 when it enqueues step s, or not.
TEST(Guard, TheLimitsOfAStepComeFromTheStepsUpToTwoBeforeIt) {
  Guard late = freshGuard({.onSpike = "skip"}), early = freshGuard({.onSpike = "skip"});
  for (int64_t step = 1; step <= 200; ++step) {
    early.observe(record(step, healthy(step)));
    EXPECT_EQ(late.limitsOf(step + 1).loss, early.limitsOf(step + 1).loss);
    EXPECT_EQ(late.limitsOf(step + 1).norm, early.limitsOf(step + 1).norm);
    late.observe(record(step, healthy(step)));
  }
}

TEST(Guard, ARestartHasTheSameLimits) {
  Guard whole = freshGuard({.onSpike = "skip"});
  const std::vector<int64_t> expected = leftOut(whole, 1, 450, withSpikes);
  for (int64_t border : {299, 300, 301, 302, 399, 400}) {
    Guard first = freshGuard({.onSpike = "skip"});
    std::vector<int64_t> steps = leftOut(first, 1, border, withSpikes);
    Guard second(plain({.onSpike = "skip"}), kVocab, kRate);
    ASSERT_TRUE(second.restore(first.state()));
    for (int64_t step : leftOut(second, border + 1, 450, withSpikes))
      steps.push_back(step);
    EXPECT_EQ(steps, expected) << border;
    EXPECT_EQ(second.state(), whole.state());
  }
}

TEST(Guard, StepsThatAreLeftOutDoNotEnterTheStatistics) {
  Guard guard = freshGuard({.onSpike = "skip"});
  watch(guard, 1, 300, [](int64_t step) { return healthy(step); });
  const auto statistics = [&] {
    const auto state = nlohmann::json::parse(guard.state());
    return std::pair(state["loss"], state["logNorm"]);
  };
  const auto before = statistics();
  for (SkipReason reason : {SkipReason::Spike, SkipReason::Named}) {
    StepRecord values = record(301, {2.6, 1}); // within the limits: they are older than the means
    values.skipped = reason;
    guard.observe(values);
    EXPECT_EQ(statistics(), before);
  }
}

// A new level of the loss, below a divergence, is not skipped for ever.
TEST(Guard, ALevelThatStaysIsNotSkippedForever) {
  Guard guard = freshGuard({.onSpike = "skip"});
  const auto steps = leftOut(guard, 1, 700, [](int64_t step) {
    Step values = healthy(step);
    if (step >= 400)
      values.loss += 0.9;
    return values;
  });
  ASSERT_THAT(steps, Not(IsEmpty()));
  EXPECT_LE(steps.back(), 400 + 100 + 2);
}

TEST(Guard, ASpikeStopsTheRunIfThatIsAskedFor) {
  Guard guard = freshGuard({.onSpike = "stop"});
  const Seen seen = watch(guard, 1, 600, withSpikes);
  EXPECT_EQ(seen.divergedAt, 300);
  EXPECT_THAT(seen.text, HasSubstr("spike: loss"));
}

// A plateau, spikes, a rise that becomes the usual, and a divergence, within 600 steps.
Step eventful(int64_t step) {
  Step values = {10.4 + 0.04 * draw(step, 5), std::exp(0.1 * draw(step, 6))};
  if (step >= 120)
    values.loss = 3 + 7 * std::exp(-static_cast<double>(step - 120) / 20) + 0.04 * draw(step, 5);
  if (step >= 260 && step < 265)
    values.norm *= 20;
  if (step >= 300)
    values.loss += 0.5;
  if (step >= 440)
    values.loss += 3;
  return values;
}

std::string textOf(const Guard::Verdict &verdict) {
  std::string text = verdict.divergence ? verdict.divergence->text : "";
  for (const std::string &warning : verdict.warnings)
    text += warning;
  return text;
}

TEST(Guard, StateRestoredAtAnyStepGivesTheSameVerdicts) {
  const int64_t steps = 620;
  for (GuardConfig settings :
       {plain(),
        plain({.onSpike = "skip", .window = 30, .patience = 10, .spike = 4, .rise = 0.7})}) {
    Guard whole = freshGuard(settings);
    std::vector<std::string> states;
    std::vector<std::string> said(1);
    int divergences = 0;
    for (int64_t step = 1; step <= steps; ++step) {
      states.push_back(whole.state());
      Guard::Verdict verdict = whole.observe(record(step, eventful(step)));
      divergences += verdict.divergence.has_value();
      said.push_back(textOf(verdict));
    }
    EXPECT_EQ(divergences, 1);
    for (int64_t start = 1; start <= steps; ++start) {
      Guard resumed(settings, kVocab, kRate);
      ASSERT_TRUE(bool(resumed.restore(states[static_cast<size_t>(start - 1)])));
      ASSERT_EQ(resumed.state(), states[static_cast<size_t>(start - 1)]);
      for (int64_t step = start; step <= steps; ++step)
        ASSERT_EQ(textOf(resumed.observe(record(step, eventful(step)))),
                  said[static_cast<size_t>(step)])
            << start << " " << step;
      ASSERT_EQ(resumed.state(), whole.state());
    }
  }
}

TEST(Guard, AStateOfAnotherVersionIsAnError) {
  Guard guard = freshGuard();
  for (const char *text : {"", "{}", "[1]", "{\"started\": true}"})
    EXPECT_FALSE(bool(guard.restore(text))) << text;
}

} // namespace
} // namespace lmc
