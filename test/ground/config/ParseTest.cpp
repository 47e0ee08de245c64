// What is wrong with a file or an override, and how it is said.

#include "test/ground/config/ConfigFixture.h"

namespace lmc {
namespace {

class ParseTest : public ConfigTest {};

TEST_F(ParseTest, UnknownKeyNamesPlaceAndNearestKey) {
  EXPECT_EQ(errorsOf(kModel + "  rope_tetha = 1.0\n" + kTraining),
            "job.toml:7:3: error: unknown key 'rope_tetha' in [model]; did you mean "
            "'rope_theta'?\n");
}

TEST_F(ParseTest, MisspeltRequiredKeyIsOneMistakeNotTwo) {
  std::string model = kModel;
  model.replace(model.find("hidden_size"), 11, "hiden_size");
  EXPECT_EQ(errorsOf(model + kTraining),
            "job.toml:3:1: error: unknown key 'hiden_size' in [model]; did you mean "
            "'hidden_size'?\n");
}

TEST_F(ParseTest, KeyInTheWrongSectionIsSentHome) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "warmup_iters = 5\n"),
            "job.toml:12:1: error: unknown key 'warmup_iters' in [training]; it belongs to "
            "[lr_schedule]\n");
}

TEST_F(ParseTest, MisspeltKeyInTheWrongSectionIsSentHome) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "warmup_iter = 5\n"),
            "job.toml:12:1: error: unknown key 'warmup_iter' in [training]; did you mean "
            "'warmup_iters' of [lr_schedule]?\n");
}

TEST_F(ParseTest, KeyLikeNothingGetsNoSuggestion) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "zzz = 5\n"),
            "job.toml:12:1: error: unknown key 'zzz' in [training]\n");
}

TEST_F(ParseTest, KeyOutsideOfSections) {
  EXPECT_EQ(errorsOf("lr = 1.0\n" + kModel + kTraining),
            "job.toml:1:1: error: key 'lr' stands outside of any section; it belongs to "
            "[lr_schedule]\n");
}

TEST_F(ParseTest, MisspeltSectionIsOneMistake) {
  std::string training = kTraining;
  training.replace(1, 8, "trainng");
  EXPECT_EQ(errorsOf(kModel + training),
            "job.toml:7:2: error: unknown section [trainng]; did you mean 'training'?\n");
}

TEST_F(ParseTest, UnknownSubsection) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "[model.rope_scalin]\nfactor = 2.0\n"),
            "job.toml:12:8: error: unknown section [model.rope_scalin]; did you mean "
            "'model.rope_scaling'?\n");
}

TEST_F(ParseTest, SectionThatIsAValue) {
  EXPECT_EQ(errorsOf("memory = 3\n" + kModel + kTraining),
            "job.toml:1:1: error: 'memory' is a section; write [memory]\n");
}

TEST_F(ParseTest, SyntaxErrorNamesThePlace) {
  const std::string errors = errorsOf(kModel + "rope_theta = = 1\n");
  EXPECT_EQ(errors.rfind("job.toml:7:14: error: ", 0), 0u) << errors;
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
}

TEST_F(ParseTest, UnfinishedSectionHeaderIsASyntaxError) {
  const std::string errors = errorsOf(kModel + "[\ntrain = 3\n");
  EXPECT_EQ(errors.rfind("job.toml:7:2: error: ", 0), 0u) << errors;
}

TEST_F(ParseTest, DuplicateKeyIsASyntaxError) {
  const std::string errors = errorsOf(kModel + "hidden_size = 64\n" + kTraining);
  EXPECT_EQ(errors.rfind("job.toml:7:", 0), 0u) << errors;
  EXPECT_NE(errors.find("hidden_size"), std::string::npos) << errors;
}

TEST_F(ParseTest, KeyGivenUnderBothItsNames) {
  const std::string errors =
      errorsOf(kModel + kTraining +
               "[model.rope_scaling]\nrope_type = \"linear\"\ntype = \"linear\"\nfactor = 2\n");
  EXPECT_EQ(errors, "job.toml:14:1: error: model.rope_scaling.rope_type is given twice, as "
                    "'rope_type' and as 'type'\n");
}

TEST_F(ParseTest, WrongTypes) {
  EXPECT_EQ(errorsOf(kModel +
                     "rope_theta = \"big\"\ntie_word_embeddings = 1\n"
                     "sliding_window = 4.5\narchitecture = 3\n" +
                     kTraining + "[data]\ntrain = [\"a.bin\", 3]\nnum_workers = 2024-01-01\n"),
            "job.toml:7:14: error: model.rope_theta must be a number, not \"big\"\n"
            "job.toml:8:23: error: model.tie_word_embeddings must be true or false, not 1\n"
            "job.toml:9:18: error: model.sliding_window must be an integer, not 4.5\n"
            "job.toml:10:16: error: model.architecture must be a string, not 3\n"
            "job.toml:17:9: error: data.train must be a string or a list of strings, not a list "
            "of other things\n"
            "job.toml:18:15: error: data.num_workers must be an integer, not a date or time\n");
}

TEST_F(ParseTest, WholeFloatForAnIntegerSaysWhatToWrite) {
  std::string training = kTraining;
  training.replace(training.find("100"), 3, "5e5");
  EXPECT_EQ(errorsOf(kModel + training),
            "job.toml:11:15: error: training.train_iters must be an integer, not a float; write "
            "500000\n");
}

TEST_F(ParseTest, OutOfRangeSaysTheRange) {
  EXPECT_EQ(errorsOf(kModel + "rope_theta = -1.0\n" + kTraining +
                     "[optimizer]\nbeta1 = 1.0\nweight_decay = nan\nclip_grad = inf\n"),
            "job.toml:7:14: error: model.rope_theta is -1; it must be from 1 to 1000000000000000\n"
            "job.toml:14:9: error: optimizer.beta1 is 1; it must be from 0 to 0.999999\n"
            "job.toml:15:16: error: optimizer.weight_decay is nan; it must be from 0 to 10\n"
            "job.toml:16:13: error: optimizer.clip_grad is inf; it must be from 0 to 1000000000\n");
}

TEST_F(ParseTest, SizesMustBePositive) {
  for (const std::string key : {"vocab_size", "hidden_size", "intermediate_size",
                                "num_hidden_layers", "num_attention_heads"}) {
    std::string model = kModel;
    const size_t at = model.find(key + " = ") + key.size() + 3;
    model = model.substr(0, at) + "0" + model.substr(model.find('\n', at));
    const std::string errors = errorsOf(model + kTraining);
    EXPECT_NE(errors.find("error: model." + key + " is 0; it must be from 1 to "),
              std::string::npos)
        << errors;
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  }
}

TEST_F(ParseTest, WrongChoiceListsTheChoices) {
  EXPECT_EQ(errorsOf(kModel + kTraining +
                     "compute_dtype = \"bf17\"\n[distributed]\n"
                     "strategy = \"zero4\"\n"),
            "job.toml:12:17: error: training.compute_dtype is \"bf17\"; it must be one of f32, "
            "bf16, f64; did you mean 'bf16'?\n"
            "job.toml:14:12: error: distributed.strategy is \"zero4\"; it must be one of "
            "no_shard, zero1, zero2, zero3, hybrid_shard, hybrid_shard_zero2; did you mean "
            "'zero1'?\n");
}

TEST_F(ParseTest, MicroBatchSizeTakesOnlyAutoAsAWord) {
  std::string training = kTraining;
  training.replace(training.find("micro_batch_size = 2"), 20, "micro_batch_size = \"most\"");
  EXPECT_EQ(errorsOf(kModel + training),
            "job.toml:10:20: error: training.micro_batch_size must be an integer or \"auto\", not "
            "\"most\"\n");
}

TEST_F(ParseTest, UnknownUnit) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "[memory]\nbudget = \"76GIB\"\n"),
            "job.toml:13:10: error: memory.budget: unknown unit 'GIB' in \"76GIB\"; units are B, "
            "KB, MB, GB, TB, KiB, MiB, GiB, TiB; did you mean 'GiB'?\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[memory]\nbudget = \"lots\"\n"),
            "job.toml:13:10: error: memory.budget: \"lots\" is not a size; write bytes or a number "
            "and a unit, such as \"76GiB\"\n");
  EXPECT_NE(errorsOf(kModel + kTraining + "[memory]\nbudget = \"1.2.3GB\"\n"), "");
  EXPECT_NE(errorsOf(kModel + kTraining + "[memory]\nbudget = \"99999999TiB\"\n"), "");
  EXPECT_NE(errorsOf(kModel + kTraining + "[memory]\nbudget = -5\n"), "");
}

TEST_F(ParseTest, EmptyStrings) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "[data]\ntrain = \"\"\n[target]\ncpu = \"\"\n"),
            "job.toml:13:9: error: data.train must not contain an empty string\n"
            "job.toml:15:7: error: target.cpu must not be empty\n");
}

TEST_F(ParseTest, MissingRequiredKeysAreAllNamedAtTheirSection) {
  EXPECT_EQ(errorsOf("[training]\nsequence_length = 32\nbatch_size = 8\ntrain_iters = 1\n"
                     "[model]\nvocab_size = 8\nhidden_size = 8\nintermediate_size = 8\n"),
            "job.toml:5:1: error: missing required key 'num_hidden_layers' in [model]\n"
            "job.toml:5:1: error: missing required key 'num_attention_heads' in [model]\n");
  const std::string errors = errorsOf("");
  EXPECT_EQ(errors.rfind("job.toml:1:1: error: missing required key 'vocab_size' in [model]\n", 0),
            0u)
      << errors;
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 8) << errors;
}

TEST_F(ParseTest, UnreadableFiles) {
  auto errorOf = [](const std::string &path) {
    return loadConfig(path, {}, modelFamilies()).error().message;
  };
  EXPECT_EQ(errorOf("/nonexistent/job.toml"),
            "/nonexistent/job.toml: error: cannot be read: No such file or directory\n");
  EXPECT_EQ(errorOf(directory), directory.string() + ": error: cannot be read: Is a directory\n");
}

TEST_F(ParseTest, BytesThatAreNotUtf8) {
  EXPECT_EQ(errorsOf(kModel + "# \xff\xfe\n" + kTraining).rfind("job.toml:7:", 0), 0u);
}

TEST_F(ParseTest, OverridesWinInOrder) {
  ASSERT_EQ(errorsOf(kModel + kTraining,
                     {"lr_schedule.lr=1e-3", "training.seed=7", "training.seed=8",
                      "model.tie_word_embeddings=true", "memory.budget=76GiB",
                      "training.compute_dtype=f32", "target.device=cuda:sm_90a",
                      "training.micro_batch_size=auto", "data.train=[\"a.bin\", \"b.bin\"]",
                      "data.validation=2024-01-01", "lr_schedule.style = \"linear\" "}),
            "");
  EXPECT_EQ(config.lrSchedule.lr, 1e-3);
  EXPECT_EQ(config.training.seed, 8u);
  EXPECT_TRUE(config.model.tieWordEmbeddings);
  EXPECT_EQ(config.memory.budget, 76ull << 30);
  EXPECT_EQ(config.training.computeDType, DataType::F32);
  EXPECT_EQ(config.target.device, "cuda:sm_90a");
  EXPECT_EQ(config.training.microBatchSize, 8);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_EQ(config.data.validation, std::vector<std::string>{"2024-01-01"});
  EXPECT_EQ(config.lrSchedule.style, "linear");
}

TEST_F(ParseTest, OverrideSuppliesARequiredKey) {
  EXPECT_EQ(errorsOf(kModel + "[training]\nsequence_length = 32\nbatch_size = 8\n",
                     {"training.train_iters=3"}),
            "");
  EXPECT_EQ(config.training.trainIters, 3);
}

TEST_F(ParseTest, FaultyOverrides) {
  EXPECT_EQ(errorsOf(kModel + kTraining,
                     {"lr", "lr=1", "lr_schedule.lrr=1", "lrschedule.lr=1", "lr_schedule.lr=fast",
                      "training.batch_size=0", "training.train_iters=", "data.train=[1, ",
                      "training.seed=1\nx=2", "=3", "training.lr=3"}),
            "--set: error: 'lr' is not of the form section.key=value\n"
            "--set: error: 'lr' names no section; write lr_schedule.lr=...\n"
            "--set: error: unknown key 'lrr' in [lr_schedule]; did you mean 'lr'?\n"
            "--set: error: unknown section [lrschedule]; did you mean 'lr_schedule'?\n"
            "--set: error: training.train_iters has no value; write training.train_iters=VALUE\n"
            "--set: error: data.train: [1, is no TOML value\n"
            "--set: error: '=3' is not of the form section.key=value\n"
            "--set: error: unknown key 'lr' in [training]; it belongs to [lr_schedule]\n"
            "--set: error: lr_schedule.lr must be a number, not \"fast\"\n"
            "--set: error: training.batch_size is 0; it must be from 1 to 16777216\n"
            "--set: error: training.seed must be an integer, not \"1\\nx=2\"\n");
}

} // namespace
} // namespace lmc
