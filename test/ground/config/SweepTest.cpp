// Which jobs the settings of a command line stand for.

#include "ground/config/Sweep.h"
#include "models/families/Families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lmc {
namespace {

using testing::ElementsAre;

std::vector<SweepJob> sweepOf(const std::vector<std::string> &settings) {
  Result<std::vector<SweepJob>> jobs = expandSettings(settings, modelFamilies());
  EXPECT_TRUE(jobs) << jobs.error().message;
  return jobs ? *jobs : std::vector<SweepJob>();
}

std::vector<std::string> namesOf(const std::vector<std::string> &settings) {
  std::vector<std::string> names;
  for (const SweepJob &job : sweepOf(settings))
    names.push_back(job.name);
  return names;
}

std::string errorOf(const std::vector<std::string> &settings) {
  Result<std::vector<SweepJob>> jobs = expandSettings(settings, modelFamilies());
  return jobs ? "" : jobs.error().message;
}

TEST(Sweep, WithoutSeveralValuesTheSettingsStayAsTheyAre) {
  for (const std::vector<std::string> &settings : {std::vector<std::string>{},
                                                   {"lr_schedule.lr=1e-3", "lr_schedule.lr = 2e-3"},
                                                   {"nonsense"},
                                                   {"lr=1,2"},
                                                   {"optimizer.bata1=1,2"}}) {
    const std::vector<SweepJob> jobs = sweepOf(settings);
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].settings, settings);
    EXPECT_EQ(jobs[0].name, "");
    EXPECT_THAT(jobs[0].varied, ElementsAre());
  }
}

TEST(Sweep, EachCombinationIsAJobAndTheLastKeyVariesFastest) {
  const std::vector<SweepJob> jobs =
      sweepOf({"lr_schedule.lr=1e-3, 3e-4", "training.seed=7", "lr_schedule.style=wsd,cosine"});
  ASSERT_EQ(jobs.size(), 4u);
  EXPECT_THAT(namesOf({"lr_schedule.lr=1e-3, 3e-4", "lr_schedule.style=wsd,cosine"}),
              ElementsAre("lr=1e-3-style=wsd", "lr=1e-3-style=cosine", "lr=3e-4-style=wsd",
                          "lr=3e-4-style=cosine"));
  EXPECT_THAT(jobs[2].settings,
              ElementsAre("lr_schedule.lr=3e-4", "training.seed=7", "lr_schedule.style=wsd"));
  EXPECT_THAT(jobs[2].varied, ElementsAre("lr_schedule.lr=3e-4", "lr_schedule.style=wsd"));
}

TEST(Sweep, NumbersSizesBooleansAndChoicesAreSeparatedByCommas) {
  EXPECT_EQ(sweepOf({"training.micro_batch_size=1,2,auto"}).size(), 3u);
  EXPECT_EQ(sweepOf({"memory.budget=40GiB,76GiB"}).size(), 2u);
  EXPECT_EQ(sweepOf({"training.document_mask=true,false"}).size(), 2u);
  EXPECT_EQ(sweepOf({"training.compute_dtype=\"bf16\",f32"}).size(), 2u);
  EXPECT_EQ(sweepOf({"model.n_embd=64,128"}).size(), 2u);     // an alias
  EXPECT_EQ(sweepOf({"phase.long.lr=1e-3,1e-4"}).size(), 2u); // a table of a list
  EXPECT_EQ(sweepOf({"model.num_experts=8,16"}).size(), 2u);  // only some families have it
}

TEST(Sweep, CommasOfTextsAndListsAreTheirOwnUnlessEachValueIsEnclosed) {
  for (const char *setting :
       {"guard.skip_steps=120,130-140", "data.train=a.bin,b.bin", "data.train=[\"a\", \"b\"]",
        "data.train=\"a,b.bin\"", "monitoring.on_event=echo \"a\", \"b\"",
        "model.mlp_only_layers=[0, 1]", "data.train=\"a.bin\",b.bin", "data.train=[\"a\", \"b\""})
    EXPECT_EQ(sweepOf({setting}).size(), 1u) << setting;
  EXPECT_THAT(namesOf({"data.train=\"x/a.bin\", 'b c.bin'"}),
              ElementsAre("train=x-a.bin", "train=b-c.bin"));
  EXPECT_THAT(namesOf({"data.train=[\"a\", \"b\"],[\"c\"]"}), ElementsAre("train=a-b", "train=c"));
  EXPECT_THAT(namesOf({"target.device=\"cpu\",\"cuda:sm_90a\""}),
              ElementsAre("device=cpu", "device=cuda-sm_90a"));
  EXPECT_THAT(namesOf({R"(guard.skip_steps="","1\",2")"}),
              ElementsAre("skip_steps=none", "skip_steps=1-2"));
  EXPECT_THAT(namesOf({"model.mlp_only_layers=[0],[0, 1]"}),
              ElementsAre("mlp_only_layers=0", "mlp_only_layers=0-1"));
}

TEST(Sweep, KeysOfTheSameNameHaveTheirPathsInTheName) {
  EXPECT_THAT(namesOf({"phase.a.lr=1,2", "lr_schedule.lr=3,4", "training.seed=5,6"}),
              testing::Contains("phase.a.lr=2-lr_schedule.lr=3-seed=6"));
}

TEST(Sweep, Errors) {
  EXPECT_EQ(errorOf({"lr_schedule.lr=1e-3,"}),
            "--set: error: lr_schedule.lr: a value is missing beside a comma");
  EXPECT_EQ(errorOf({"lr_schedule.lr=1e-3,2e-3,1e-3"}),
            "--set: error: lr_schedule.lr has the value 1e-3 twice; give each value once");
  EXPECT_EQ(errorOf({"lr_schedule.lr=1,2", "lr_schedule.lr=3"}),
            "--set: error: lr_schedule.lr has several values, and is given again; give it once");
  std::string seeds = "training.seed=0";
  for (int i = 1; i < 1000; ++i)
    seeds += "," + std::to_string(i);
  EXPECT_EQ(sweepOf({seeds}).size(), 1000u);
  EXPECT_EQ(errorOf({seeds, "lr_schedule.lr=1,2"}),
            "--set: error: the values of all keys make more than 1000 combinations; give fewer "
            "values at a time");
  EXPECT_THAT(errorOf({"data.train=\"" + std::string(200, 'a') + "\",\"b\""}),
              testing::HasSubstr("the name of a plan would have 206 letters"));
}

} // namespace
} // namespace lmc
