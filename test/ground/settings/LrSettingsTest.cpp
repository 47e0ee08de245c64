#include "ground/settings/LrSettings.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

constexpr int64_t kLastStep = 1000;

// Keys that were given in the file.
LrKeys given(const LrKeys &keys, std::initializer_list<const char *> names) {
  LrKeys result = keys;
  for (const char *name : names)
    result.given[name] = 1;
  return result;
}

// Returns the texts of the mistakes, each after its key.
std::vector<std::string> faults(const LrKeys &keys, int64_t lastStep = kLastStep) {
  std::vector<std::string> texts;
  for (const SettingFault &fault : lrFaults(keys, lastStep))
    texts.push_back(fault.key + ": " + fault.text);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(LrSettings, DefaultsHaveNoMistake) {
  EXPECT_EQ(faults({}), Texts());
  const LrSettings settings = lrSettings({}, kLastStep);
  EXPECT_EQ(settings.style, LrStyle::Cosine);
  EXPECT_EQ(settings.decayIters, kLastStep);
  EXPECT_EQ(settings.warmupIters, 0);
  EXPECT_EQ(settings.begin, 0);
}

TEST(LrSettings, StepsCountFromTheRestart) {
  const LrKeys keys =
      given({.warmupRatio = 0.1, .restartStep = 600}, {"warmup_ratio", "restart_step"});
  EXPECT_EQ(faults(keys), Texts());
  const LrSettings settings = lrSettings(keys, kLastStep);
  EXPECT_EQ(settings.begin, 600);
  EXPECT_EQ(settings.decayIters, 400);
  EXPECT_EQ(settings.warmupIters, 40);
  LrKeys shorter = given(keys, {"decay_iters"});
  shorter.decayIters = 250;
  EXPECT_EQ(lrSettings(shorter, kLastStep).decayIters, 250);
  EXPECT_EQ(lrSettings(shorter, kLastStep).warmupIters, 25);
  shorter.decayIters = 401;
  EXPECT_EQ(faults(shorter),
            Texts{"decay_iters: decay_iters = 401 is more than train_iters = 1000 - "
                  "restart_step = 600"});
  EXPECT_EQ(faults(keys, 600),
            Texts{"restart_step: restart_step = 600 is not below train_iters = 600, "
                  "so that no step is left"});
}

TEST(LrSettings, ADecayThatEndsEarlyGivesAWarning) {
  LrKeys keys = given({.decayIters = 700}, {"decay_iters"});
  ASSERT_EQ(lrFaults(keys, kLastStep).size(), 1u);
  EXPECT_TRUE(lrFaults(keys, kLastStep)[0].isWarning);
  EXPECT_EQ(faults(keys),
            Texts{"decay_iters: decay_iters = 700 ends the decay before the run: the last 300 of "
                  "1000 steps train at the lowest rate; leave decay_iters out if it is to reach to "
                  "the end"});
  keys.style = "constant";
  EXPECT_EQ(faults(keys), Texts()) << "a constant rate has no decay";
  EXPECT_EQ(faults(given({.style = "wsd", .decayIters = kLastStep}, {"decay_iters"})), Texts());
}

TEST(LrSettings, OfTwoFormsThatWasGivenLaterCounts) {
  LrKeys keys{.lr = 0.02, .minLr = 0.005, .minLrRatio = 0.5, .warmupIters = 7, .warmupRatio = 0.25};
  EXPECT_EQ(lrSettings(keys, kLastStep).minLr, 0.005);
  EXPECT_EQ(lrSettings(keys, kLastStep).warmupIters, 7);
  keys = given(keys, {"min_lr_ratio", "warmup_ratio"});
  EXPECT_EQ(lrSettings(keys, kLastStep).minLr, 0.01);
  EXPECT_EQ(lrSettings(keys, kLastStep).warmupIters, 250);
  keys.given["min_lr"] = keys.given["warmup_iters"] = 3;
  EXPECT_EQ(faults(keys), Texts());
  EXPECT_EQ(lrSettings(keys, kLastStep).minLr, 0.005);
  EXPECT_EQ(lrSettings(keys, kLastStep).warmupIters, 7);
  keys.given["min_lr"] = keys.given["warmup_iters"] = 1;
  EXPECT_EQ(faults(keys),
            (Texts{"min_lr_ratio: min_lr and min_lr_ratio say the same; give one of them",
                   "warmup_ratio: warmup_iters and warmup_ratio say the same; give one of them"}));
}

TEST(LrSettings, RulesBetweenKeys) {
  EXPECT_EQ(faults({.lr = 0.01, .minLr = 0.02}),
            Texts{"min_lr: min_lr = 0.02 is more than lr = 0.01"});
  EXPECT_EQ(faults({.style = "constant", .lr = 0.01, .minLr = 0.02}), Texts());
  EXPECT_EQ(faults(given({.lr = 0.01, .minLr = 0.02, .minLrRatio = 1}, {"min_lr_ratio"})), Texts());
  EXPECT_EQ(faults({.warmupIters = 1000}), Texts{"warmup_iters: warmup_iters = 1000 must be below "
                                                 "decay_iters = 1000 (default: train_iters)"});
  EXPECT_EQ(
      faults(given({.warmupRatio = 1}, {"warmup_ratio"})),
      Texts{"warmup_ratio: warmup_ratio = 1 is 1000 steps, which must be below decay_iters = 1000 "
            "(default: train_iters)"});
}

TEST(LrSettings, PiecewiseTakesPoints) {
  const LrSettings settings =
      lrSettings({.style = "piecewise", .points = {"0:0", "100:3e-4", "5000:0.00003"}}, kLastStep);
  ASSERT_EQ(settings.points.size(), 3u);
  EXPECT_EQ(settings.points[1].step, 100);
  EXPECT_EQ(settings.points[1].rate, 3e-4);
  EXPECT_EQ(settings.points[2].rate, 3e-5);
  EXPECT_EQ(settings.lr, 3e-4) << "the highest rate";

  EXPECT_EQ(
      faults({.style = "piecewise"}),
      Texts{"style: style = \"piecewise\" needs points, such as points = [\"0:0\", \"100:3e-4\", "
            "\"5000:3e-5\"]"});
  EXPECT_EQ(
      faults(given({.points = {"1:0"}}, {"points"})),
      Texts{
          "points: points do nothing with style = \"cosine\"; give style = \"piecewise\", or leave "
          "them out"});
  LrKeys switched = given({.points = {"1:0"}}, {"points"});
  switched.given["style"] = 3;
  EXPECT_EQ(faults(switched), Texts())
      << "a --set of the style leaves the points of the file unused";
  for (const char *bad :
       {"", "1", "1:", ":1", "-1:0", "1.5:0", "1:x", "1:0:0", " 1:0", "1:nan", "1:11", "1:-1"})
    EXPECT_EQ(faults({.style = "piecewise", .points = {bad}}).size(), 1u) << bad;
  EXPECT_EQ(faults({.style = "piecewise", .points = {"5:0", "4:0"}}),
            Texts{"points: points has \"4:0\" behind step 5; the steps must rise"});
}

} // namespace
} // namespace lmc
