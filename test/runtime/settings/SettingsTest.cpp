#include "runtime/settings/Settings.h"

#include "test/runtime/loop/TinyPlan.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

using test::TinyPlan;

// The table with the given changes, or the error's text.
std::string errorOf(const std::vector<std::string> &overrides) {
  auto bytes = TinyPlan().bytes();
  auto table = RunSettings::read(*plan::GetPlan(bytes.data()), overrides);
  if (!table)
    return table.error().message;
  auto settings = TrainSettings::make(*table);
  return settings ? "" : settings.error().message;
}

TrainSettings read(const std::vector<std::string> &overrides) {
  auto bytes = TinyPlan().bytes();
  auto table = RunSettings::read(*plan::GetPlan(bytes.data()), overrides);
  EXPECT_TRUE(bool(table)) << table.error().message;
  auto settings = TrainSettings::make(*table);
  EXPECT_TRUE(bool(settings)) << settings.error().message;
  return *settings;
}

TEST(Settings, AreThoseOfThePlan) {
  TrainSettings settings = read({});
  EXPECT_EQ(settings.config.training.seed, 1234u);
  EXPECT_EQ(settings.lr.style, LrStyle::Cosine);
  EXPECT_EQ(settings.lr.lr, 0.05);
  EXPECT_EQ(settings.config.optimizer.beta2, 0.95);
  EXPECT_EQ(settings.trainData.at(0).paths, std::vector<std::string>{"train.bin"});
}

TEST(Settings, TakeTomlValuesAndBareWords) {
  TrainSettings settings = read({"lr_schedule.lr=1e-2", "lr_schedule.style=wsd",
                                 "optimizer.beta1=0.5", "training.train_iters=1_000",
                                 "data.train=[\"a.bin\", \"b/*.bin\"]", "data.validation=c.bin"});
  EXPECT_EQ(settings.lr.lr, 1e-2);
  EXPECT_EQ(settings.lr.style, LrStyle::Wsd);
  EXPECT_EQ(settings.config.optimizer.beta1, 0.5);
  EXPECT_EQ(settings.config.training.trainIters, 1000);
  EXPECT_EQ(settings.trainData.at(0).paths, (std::vector<std::string>{"a.bin", "b/*.bin"}));
  EXPECT_EQ(settings.validations.at(0).paths, std::vector<std::string>{"c.bin"});
}

TEST(Settings, TheLastChangeCounts) {
  EXPECT_EQ(read({"lr_schedule.lr=0.01", "lr_schedule.lr=0.02"}).lr.lr, 0.02);
}

TEST(Settings, DefaultsFollowTheSettingThatTheyAreComputedFrom) {
  EXPECT_EQ(read({"lr_schedule.lr=0.02"}).lr.minLr, 0.002);
  EXPECT_EQ(read({"lr_schedule.lr=0.02", "lr_schedule.min_lr=0.01"}).lr.minLr, 0.01);
  // decay_iters is a value of the file in this plan.
  EXPECT_EQ(read({"training.train_iters=500"}).lr.decayIters, 100);

  TinyPlan tiny;
  for (auto &setting : tiny.plan.settings)
    if (setting->key == "lr_schedule.decay_iters")
      setting->origin = plan::SettingOrigin::Default;
  auto bytes = tiny.bytes();
  auto decay = [&](const std::vector<std::string> &overrides) {
    auto table = RunSettings::read(*plan::GetPlan(bytes.data()), overrides);
    return TrainSettings::make(*table)->lr.decayIters;
  };
  EXPECT_EQ(decay({"training.train_iters=500"}), 500);
  EXPECT_EQ(decay({"training.train_iters=500", "lr_schedule.decay_iters=20"}), 20);
}

TEST(Settings, HaveAnOrigin) {
  auto bytes = TinyPlan().bytes();
  auto table = RunSettings::read(*plan::GetPlan(bytes.data()), {"lr_schedule.lr=0.02"});
  ASSERT_TRUE(bool(table));
  EXPECT_EQ(table->table.find("lr_schedule.lr")->origin, SettingOrigin::RunSet);
  EXPECT_EQ(table->table.find("optimizer.beta1")->origin, SettingOrigin::Default);
  EXPECT_EQ(table->table.find("absent"), nullptr);
  EXPECT_STREQ(originName(SettingOrigin::CompileSet), "lmc compile --set");
}

TEST(Settings, RulesBetweenTwoKeysHoldAfterAChange) {
  EXPECT_EQ(errorOf({"lr_schedule.decay_iters=1001"}),
            "lr_schedule.decay_iters = 1001 is more than train_iters = 1000; --set "
            "lr_schedule.decay_iters=... changes it");
  EXPECT_EQ(
      errorOf({"lr_schedule.warmup_iters=100"}),
      "lr_schedule.warmup_iters = 100 must be below decay_iters = 100 (default: train_iters); "
      "--set lr_schedule.warmup_iters=... changes it");
}

// In the words of `lmc compile --set`.
TEST(Settings, EveryMistakeIsNamed) {
  EXPECT_EQ(errorOf({"lr_schedule.lr"}),
            "--set lr_schedule.lr: 'lr_schedule.lr' is not of the form section.key=value");
  EXPECT_EQ(errorOf({"lr_schedul.lr=1"}),
            "--set lr_schedul.lr=1: unknown section [lr_schedul]; did you mean 'lr_schedule'?");
  EXPECT_EQ(errorOf({"zzz=1"}), "--set zzz=1: 'zzz' names no section; write section.zzz=...");
  EXPECT_EQ(errorOf({"training.batch_size=8"}),
            "--set training.batch_size=8: 'training.batch_size' is fixed in the plan; change the "
            "TOML and compile again");
  EXPECT_EQ(errorOf({"lr_schedule.lr=fast"}),
            "--set lr_schedule.lr=fast: lr_schedule.lr must be a number, not \"fast\"");
  EXPECT_EQ(errorOf({"lr_schedule.lr=nan"}),
            "--set lr_schedule.lr=nan: lr_schedule.lr is nan; it must be from 0 to 10");
  EXPECT_EQ(errorOf({"training.train_iters=1.5"}),
            "--set training.train_iters=1.5: training.train_iters must be an integer, not 1.5");
  EXPECT_EQ(errorOf({"data.train=[3]"}),
            "--set data.train=[3]: data.train must be a string or a list of strings, not a list "
            "of integers");
  EXPECT_EQ(errorOf({"lr_schedule.lr=11"}),
            "--set lr_schedule.lr=11: lr_schedule.lr is 11; it must be from 0 to 10");
  EXPECT_EQ(errorOf({"lr_schedule.style=cosin"}),
            "--set lr_schedule.style=cosin: lr_schedule.style is \"cosin\"; it must be one of "
            "constant, linear, cosine, wsd, inverse_sqrt, piecewise; did you mean 'cosine'?");
  EXPECT_EQ(errorOf({"lr_schedule.lr=1\nx=2"}),
            "--set lr_schedule.lr=1\nx=2: lr_schedule.lr must be a number, not \"1\nx=2\"");
}

TEST(Settings, MinLrAboveLrIsAnError) {
  EXPECT_EQ(
      errorOf({"lr_schedule.min_lr=0.06"}),
      "lr_schedule.min_lr = 0.06 is more than lr = 0.05; --set lr_schedule.min_lr=... changes "
      "it");
  EXPECT_EQ(errorOf({"lr_schedule.min_lr=0.06", "lr_schedule.style=constant"}), "");
}

TEST(Settings, HaveTheValidationSetsByName) {
  EXPECT_EQ(read({}).validations.at(0).name, "");
  EXPECT_EQ(read({"monitoring.validation_iters=0"}).validations.at(0).iters, 0);
  EXPECT_TRUE(read({"data.validation=[]"}).validations.empty());

  TinyPlan tiny;
  tiny.addValidationSet("web", "web.bin", "0", "3");
  tiny.addValidationSet("code", "code.bin", "40", "2");
  auto bytes = tiny.bytes();
  auto settings = [&](const std::vector<std::string> &overrides) -> Result<TrainSettings> {
    auto table = RunSettings::read(*plan::GetPlan(bytes.data()), overrides);
    LMC_TRY(table);
    return TrainSettings::make(*table);
  };
  auto sets = settings({"monitoring.validation_interval=10", "validation.code.interval=20"});
  ASSERT_TRUE(bool(sets)) << sets.error().message;
  ASSERT_EQ(sets->validations.size(), 2u);
  const ValidationSettings &code = sets->validations[0], &web = sets->validations[1];
  EXPECT_EQ(code.name, "code");
  EXPECT_EQ(code.paths, std::vector<std::string>{"code.bin"});
  EXPECT_EQ(code.interval, 20);
  EXPECT_EQ(code.iters, 2);
  EXPECT_EQ(web.name, "web");
  EXPECT_EQ(web.key, "validation.web.paths");
  EXPECT_EQ(web.interval, 10) << "its default follows";

  auto later = settings({"data.validation=v.bin"});
  ASSERT_TRUE(bool(later)) << later.error().message;
  ASSERT_EQ(later->validations.size(), 1u);
  EXPECT_EQ(later->validations[0].name, "");
  EXPECT_EQ(later->validations[0].paths, std::vector<std::string>{"v.bin"});
  auto none = settings({"data.validation=[]"});
  ASSERT_TRUE(bool(none)) << none.error().message;
  EXPECT_TRUE(none->validations.empty());
  auto both = settings({"data.validation=v.bin", "validation.web.iters=3"});
  ASSERT_FALSE(bool(both));
  EXPECT_EQ(both.error().message,
            "data.validation and [[validation]] (web, code) both say what to validate "
            "with; set the paths of a table, such as validation.web.paths, or leave validation "
            "out; --set data.validation=... changes it");
}

TEST(Settings, HaveTheParameterGroupsByName) {
  EXPECT_TRUE(read({}).config.optimizer.groups.empty());
  TinyPlan tiny;
  tiny.addParameterGroup("embeddings");
  tiny.addParameterGroup("norms");
  auto bytes = tiny.bytes();
  auto table = RunSettings::read(
      *plan::GetPlan(bytes.data()),
      {"optimizer.group.norms.lr_mult=0.5", "optimizer.group.embeddings.weight_decay=0"});
  ASSERT_TRUE(bool(table)) << table.error().message;
  auto settings = TrainSettings::make(*table);
  ASSERT_TRUE(bool(settings)) << settings.error().message;
  auto &groups = settings->config.optimizer.groups;
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups["norms"].lrMult, 0.5);
  EXPECT_EQ(groups["norms"].weightDecay, 0.1);
  EXPECT_EQ(groups["embeddings"].lrMult, 1);
  EXPECT_EQ(groups["embeddings"].weightDecay, 0);
}

TEST(Settings, TheIntervalOfCheckpointsIsInStepsOrMinutes) {
  const auto made = [](int64_t interval, SettingOrigin ofInterval, double minutes,
                       SettingOrigin ofMinutes, bool hasMinutes = true) {
    const auto from = [](const char *key, SettingOrigin origin) {
      Setting setting{};
      setting.key = key;
      setting.origin = origin;
      return setting;
    };
    std::vector<Setting> table = {from("checkpoint.interval", ofInterval)};
    if (hasMinutes)
      table.push_back(from("checkpoint.interval_minutes", ofMinutes));
    RunSettings settings{{}, SettingTable(std::move(table))};
    settings.config.training.trainIters = 10000;
    settings.config.checkpoint.interval = interval;
    settings.config.checkpoint.intervalMinutes = minutes;
    return settings;
  };
  const auto steps = [](const RunSettings &settings, double stepSeconds) {
    return checkpointInterval(settings.config, settings.table, stepSeconds);
  };
  const auto warning = [](const RunSettings &settings, double stepSeconds) {
    return unsavedWarning(settings.config, settings.table, stepSeconds);
  };
  constexpr auto Default = SettingOrigin::Default, File = SettingOrigin::File,
                 RunSet = SettingOrigin::RunSet;
  // By default every half an hour of the predicted step.
  EXPECT_EQ(steps(made(0, Default, 30, Default), 2), 900);
  EXPECT_EQ(steps(made(0, Default, 30, Default), 1e6), 1);
  EXPECT_EQ(steps(made(0, Default, 30, Default), 0), 1000) << "no prediction";
  EXPECT_EQ(steps(made(0, Default, 0, File), 2), 0);
  EXPECT_EQ(steps(made(0, File, 30, Default), 2), 0) << "only at the end";
  EXPECT_EQ(steps(made(7, File, 30, Default), 2), 7);
  EXPECT_EQ(steps(made(7, File, 10, RunSet), 2), 300) << "the later counts";
  EXPECT_EQ(steps(made(7, RunSet, 10, File), 2), 7);
  EXPECT_EQ(steps(made(0, Default, 30, Default, false), 2), 0) << "an older plan";

  EXPECT_EQ(warning(made(0, Default, 30, Default), 2), "");
  EXPECT_EQ(warning(made(0, File, 30, Default), 0.01), "") << "100 s";
  EXPECT_NE(warning(made(0, File, 30, Default), 2).find("5.56 hours"), std::string::npos);
}

TEST(Settings, StepsToSkipAreNumbersAndRanges) {
  auto ranges = [](std::string_view text) {
    std::vector<std::pair<uint64_t, uint64_t>> result;
    auto read = readStepRanges(text);
    EXPECT_TRUE(read) << text;
    if (read)
      for (const StepRange &range : *read)
        result.emplace_back(range.first, range.last);
    return result;
  };
  using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;
  EXPECT_EQ(ranges(""), Pairs());
  EXPECT_EQ(ranges("7"), (Pairs{{7, 7}}));
  EXPECT_EQ(ranges("120,130-140,1"), (Pairs{{120, 120}, {130, 140}, {1, 1}}));
  for (const char *wrong :
       {"0", "-3", "5-", "5-4", "5,", ",5", "5,,6", "a", "5 6", "1-2-3", "99999999999999999999"})
    EXPECT_FALSE(readStepRanges(wrong)) << wrong;
}

// As a plan of an earlier release.
TEST(Settings, AKeyThatThePlanDoesNotHaveIsAtItsDefault) {
  TinyPlan tiny;
  tiny.removeSetting("optimizer.beta2");
  auto bytes = tiny.bytes();
  auto settings = RunSettings::read(*plan::GetPlan(bytes.data()), {});
  ASSERT_TRUE(bool(settings)) << settings.error().message;
  EXPECT_EQ(settings->config.optimizer.beta2, OptimizerConfig().beta2);
  auto changed = RunSettings::read(*plan::GetPlan(bytes.data()), {"optimizer.beta2=0.9"});
  ASSERT_FALSE(bool(changed));
  EXPECT_EQ(changed.error().message,
            "--set optimizer.beta2=0.9: the plan has no 'optimizer.beta2'; compile it again with "
            "the lmc of this release");
}

// A key that this release does not know, such as one of a family, keeps its text and its origin.
TEST(Settings, AnUnknownKeyOfThePlanKeepsItsText) {
  TinyPlan tiny;
  tiny.addSetting("model.qkv_colour", plan::SettingType::String, "blue");
  auto bytes = tiny.bytes();
  auto settings = RunSettings::read(*plan::GetPlan(bytes.data()), {});
  ASSERT_TRUE(bool(settings)) << settings.error().message;
  EXPECT_EQ(settings->table.find("model.qkv_colour")->text(), "blue");
}

TEST(Settings, AValueOfThePlanThatItsKeyCannotHaveIsAnError) {
  TinyPlan tiny;
  for (auto &setting : tiny.plan.settings)
    if (setting->key == "checkpoint.keep")
      setting->value = "-1";
  auto bytes = tiny.bytes();
  auto settings = RunSettings::read(*plan::GetPlan(bytes.data()), {});
  ASSERT_FALSE(bool(settings));
  EXPECT_EQ(settings.error().message.find("plan: checkpoint.keep is -1; it must be "), 0u)
      << settings.error().message;
}

} // namespace
} // namespace lmc
