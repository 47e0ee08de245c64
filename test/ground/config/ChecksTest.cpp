// What belongs together, what follows from what, and what the plan is told.

#include "plan_generated.h"
#include "test/ground/config/ConfigFixture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

namespace lmc {
namespace {

class ChecksTest : public ConfigTest {
protected:
  // kModel + kTraining with the value of `key` replaced.
  static std::string with(const std::string &key, const std::string &value) {
    std::string text = kModel + kTraining;
    const size_t at = text.find("\n" + key + " = ") + key.size() + 4;
    return text.replace(at, text.find('\n', at) - at, value);
  }
};

TEST_F(ChecksTest, HeadsDivideHidden) {
  EXPECT_EQ(errorsOf(with("num_attention_heads", "5")),
            "job.toml:6:23: error: num_attention_heads = 5 does not divide hidden_size = 64; use "
            "4 or 8 heads, or give head_dim\n");
  EXPECT_EQ(errorsOf(with("num_attention_heads", "5\nhead_dim = 16")), "");
}

TEST_F(ChecksTest, Adamw8bitComputesInF32) {
  const std::string base = kModel + kTraining + "compute_dtype = \"f64\"\n[optimizer]\n";
  EXPECT_EQ(errorsOf(base + "type = \"adamw\"\n"), "");
  const std::string errors = errorsOf(base + "type = \"adamw8bit\"\n");
  EXPECT_NE(errors.find(": error: adamw8bit computes in f32, not in compute_dtype = \"f64\"; use "
                        "adamw, or f32 or bf16\n"),
            std::string::npos)
      << errors;
}

TEST_F(ChecksTest, EightBitsAreNotForF64) {
  using testing::HasSubstr;
  const std::string fp8 = "fp8 = \"tensor\"\n", filter = "fp8_filter = [\"*.o_proj.weight\"]\n";
  EXPECT_EQ(errorsOf(kModel + kTraining + fp8), "");
  EXPECT_EQ(errorsOf(kModel + kTraining + fp8 + filter), "");
  EXPECT_THAT(errorsOf(kModel + kTraining + "compute_dtype = \"f64\"\n" + fp8),
              HasSubstr(": error: fp8 = \"tensor\" needs compute_dtype = \"bf16\" or \"f32\", not "
                        "\"f64\"\n"));
  EXPECT_THAT(errorsOf(kModel + kTraining + filter),
              HasSubstr("with fp8 = \"none\" all do; leave it out, or give fp8 = \"tensor\""));
  EXPECT_THAT(errorsOf(kModel + kTraining + "fp8 = \"row\"\n"),
              HasSubstr("it must be one of none, tensor"));
}

TEST_F(ChecksTest, MuonsRateFollowsTheSchedule) {
  const std::string base = kModel + kTraining + "[lr_schedule]\nlr = 0.0\n[optimizer]\n";
  EXPECT_EQ(errorsOf(base + "type = \"muon\"\n"), "");
  EXPECT_EQ(errorsOf(base + "muon_lr = 0.02\n"), "");
  const std::string errors = errorsOf(base + "type = \"muon\"\nmuon_lr = 0.02\n");
  EXPECT_NE(errors.find(": error: muon_lr = 0.02 follows the schedule of lr_schedule.lr, which is "
                        "0; give an lr above 0, or leave out muon_lr\n"),
            std::string::npos)
      << errors;
}

TEST_F(ChecksTest, KeyValueHeadsDivideHeads) {
  EXPECT_EQ(errorsOf(with("num_attention_heads", "4\nnum_key_value_heads = 3")),
            "job.toml:7:23: error: num_key_value_heads = 3 does not divide num_attention_heads = "
            "4; use 2 or 4\n");
}

TEST_F(ChecksTest, HeadDimIsEven) {
  EXPECT_EQ(errorsOf(with("num_attention_heads", "4\nhead_dim = 15")),
            "job.toml:7:12: error: head_dim = 15 is odd; RoPE turns pairs, so it must be even\n");
  EXPECT_EQ(errorsOf(with("num_attention_heads", "64")),
            "job.toml:6:23: error: head_dim = 1 is odd; RoPE turns pairs, so it must be even\n");
}

TEST_F(ChecksTest, ModelsThatNoHuggingFaceClassHas) {
  for (const std::string combination :
       {"architecture = \"mistral\"\nattention_bias = true",
        "architecture = \"mistral\"\nmlp_bias = true", "sliding_window = 8\nattention_bias = true",
        "head_dim = 16\nnum_key_value_heads = 5\nmlp_bias = true"}) {
    const bool oddHeads = combination.find("head_dim") != std::string::npos;
    const std::string errors =
        errorsOf(with("num_attention_heads", (oddHeads ? "5\n" : "4\n") + combination));
    EXPECT_NE(errors.find("_bias does not go with "), std::string::npos) << errors;
  }
  EXPECT_EQ(errorsOf(with("num_attention_heads", "4\nsliding_window = 8")), "");
  EXPECT_EQ(errorsOf(with("num_attention_heads", "4\nattention_bias = true\nmlp_bias = true")), "");
}

TEST_F(ChecksTest, RopeScaling) {
  const std::string base = kModel + kTraining + "[model.rope_scaling]\n";
  EXPECT_EQ(errorsOf(base + "factor = 2.0\n"),
            "job.toml:12:1: error: [model.rope_scaling] has factor but no rope_type, so it would "
            "do nothing; give one of linear, llama3, dynamic, yarn\n");
  EXPECT_EQ(errorsOf(base + "type = \"linear\"\n"),
            "job.toml:13:8: error: [model.rope_scaling] needs 'factor': how much longer the "
            "context becomes\n");
  EXPECT_EQ(errorsOf(base + "rope_type = \"llama3\"\nfactor = 8\nlow_freq_factor = 4\n"),
            "job.toml:15:19: error: low_freq_factor = 4 must be below high_freq_factor = 4\n");
  EXPECT_EQ(errorsOf(base + "rope_type = \"yarn\"\nfactor = 8\nbeta_slow = 40\n"),
            "job.toml:15:13: error: beta_slow = 40 must be below beta_fast = 32\n");
  EXPECT_EQ(errorsOf(base + "rope_type = \"dynamic\"\nfactor = 8\n"
                            "original_max_position_embeddings = 16\n"),
            "job.toml:15:36: error: rope_type \"dynamic\" starts from max_position_embeddings = "
            "32; leave original_max_position_embeddings = 16 out\n");
  EXPECT_EQ(errorsOf(kModel +
                     "max_position_embeddings = 256\n"
                     "rope_scaling = { rope_type = \"yarn\", factor = 4 }\n" +
                     kTraining),
            "");
  EXPECT_EQ(config.model.ropeScaling.type, RopeScalingType::Yarn);
  EXPECT_EQ(config.model.ropeScaling.factor, 4.0);
  EXPECT_EQ(config.model.ropeScaling.originalMaxPositionEmbeddings, 256);
}

TEST_F(ChecksTest, SequenceFitsThePositions) {
  EXPECT_EQ(errorsOf(kModel + "max_position_embeddings = 16\n" + kTraining),
            "job.toml:9:19: error: sequence_length = 32 is more than max_position_embeddings = "
            "16\n");
}

TEST_F(ChecksTest, MicroBatchesMakeUpTheBatch) {
  EXPECT_EQ(errorsOf(with("micro_batch_size", "3")),
            "job.toml:10:20: error: micro_batch_size = 3 (MBS) x 1 devices does not divide "
            "batch_size = 8 (GBS), so there is no whole number of accumulation steps (GAS); use "
            "micro_batch_size = 2 or 4 or batch_size = 6 or 9\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[distributed]\nnodes = 3\n"),
            "job.toml:9:14: error: batch_size = 8 (GBS) cannot be shared by 3 devices; use "
            "batch_size = 6 or 9\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[distributed]\nnodes = 2\ndevices_per_node = 8\n"),
            "job.toml:9:14: error: batch_size = 8 (GBS) cannot be shared by 16 devices; use "
            "batch_size = 16\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[distributed]\ndevices_per_node = 2\n"), "");
  EXPECT_EQ(config.training.gradientAccumulationSteps, 2);
}

TEST_F(ChecksTest, AutoMicroBatchIsTheLargestDivisorUpToEight) {
  const std::pair<const char *, int64_t> cases[] = {{"1", 1},  {"6", 6},   {"9", 3}, {"11", 1},
                                                    {"14", 7}, {"512", 8}, {"12", 6}};
  for (const auto &[batch, expected] : cases) {
    std::string text = with("batch_size", batch);
    text.erase(text.find("micro_batch_size = 2\n"), 21);
    ASSERT_EQ(errorsOf(text), "") << batch;
    EXPECT_EQ(config.training.microBatchSize, expected) << batch;
    EXPECT_EQ(config.training.microBatchSize * config.training.gradientAccumulationSteps,
              config.training.batchSize);
  }
}

TEST_F(ChecksTest, TheLossChunkIsAutoOrTokens) {
  ASSERT_EQ(errorsOf(kModel + kTraining), "");
  EXPECT_EQ(config.memory.lossChunk, 0);
  ASSERT_EQ(errorsOf(kModel + kTraining + "[memory]\nloss_chunk = \"auto\"\n"), "");
  EXPECT_EQ(config.memory.lossChunk, 0);
  ASSERT_EQ(errorsOf(kModel + kTraining + "[memory]\nloss_chunk = 1000\n"), "");
  EXPECT_EQ(config.memory.lossChunk, 1000);
  setLossChunk(config, 64);
  for (const Setting &setting : config.settings)
    if (setting.key == "memory.loss_chunk") {
      EXPECT_EQ(setting.value, "64");
      EXPECT_FALSE(setting.identity) << "another chunk trains the same model";
    }
  EXPECT_EQ(errorsOf(kModel + kTraining + "[memory]\nloss_chunk = 0\n"),
            "job.toml:13:14: error: memory.loss_chunk is 0; it must be from 1 to 2147483647, or "
            "\"auto\"\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[memory]\nloss_chunk = \"large\"\n"),
            "job.toml:13:14: error: memory.loss_chunk must be an integer or \"auto\", not "
            "\"large\"\n");
}

TEST_F(ChecksTest, Schedule) {
  const std::string base = kModel + kTraining + "[lr_schedule]\n";
  EXPECT_EQ(errorsOf(base + "decay_iters = 101\n"),
            "job.toml:13:15: error: decay_iters = 101 is more than train_iters = 100\n");
  EXPECT_EQ(errorsOf(base + "warmup_iters = 100\n"),
            "job.toml:13:16: error: warmup_iters = 100 must be below decay_iters = 100 (default: "
            "train_iters)\n");
  EXPECT_EQ(errorsOf(base + "lr = 1e-4\nmin_lr = 2e-4\n"),
            "job.toml:14:10: error: min_lr = 0.0002 is more than lr = 0.0001\n");
  EXPECT_EQ(errorsOf(base + "lr = 1e-4\n"), "");
  EXPECT_EQ(config.lrSchedule.minLr, 1e-5);
  EXPECT_EQ(config.lrSchedule.decayIters, 100);
  EXPECT_EQ(
      errorsOf(base + "decay_iters = 60\nrestart_step = 50\n"),
      "job.toml:13:15: error: decay_iters = 60 is more than train_iters = 100 - restart_step = "
      "50\n");
  EXPECT_EQ(errorsOf(base + "min_lr = 1e-5\nmin_lr_ratio = 0.1\n"),
            "job.toml:14:16: error: min_lr and min_lr_ratio say the same; give one of them\n");
  EXPECT_EQ(
      errorsOf(base + "warmup_iters = 0\nwarmup_ratio = 0.1\n"),
      "job.toml:14:16: error: warmup_iters and warmup_ratio say the same; give one of them\n");
  EXPECT_EQ(errorsOf(base + "min_lr = 1e-5\n", {"lr_schedule.min_lr_ratio=0.5"}), "")
      << "that of --set replaces that of the file";
  EXPECT_EQ(
      errorsOf(base + "style = \"piecewise\"\npoints = [\"0:0\", \"9:3e-4\", \"9:0\", \"x\"]\n"),
      "job.toml:14:10: error: points has \"9:0\" behind step 9; the steps must rise\n"
      "job.toml:14:10: error: points has \"x\"; a point is \"STEP:RATE\", such as "
      "\"1000:3e-4\"\n");
  EXPECT_EQ(
      errorsOf(base + "style = \"inverse_sqr\"\n"),
      "job.toml:13:9: error: lr_schedule.style is \"inverse_sqr\"; it must be one of constant, "
      "linear, cosine, wsd, inverse_sqrt, piecewise; did you mean 'inverse_sqrt'?\n");
}

TEST_F(ChecksTest, AnOverrideOfStepsOrTokensGoesBeforeTheFile) {
  EXPECT_EQ(errorsOf(kModel + kTraining, {"training.train_tokens=10240"}), "");
  EXPECT_EQ(config.training.trainIters, 40); // of 8 x 32 tokens
  EXPECT_EQ(errorsOf(kModel + kTraining, {"training.train_tokens=10240", "training.train_iters=7"}),
            "--set: error: train_tokens and train_iters are both given; leave one out\n");
  std::string tokens = kTraining;
  tokens.replace(tokens.find("train_iters = 100"), 17, "train_tokens = 10240");
  EXPECT_EQ(errorsOf(kModel + tokens, {"training.train_iters=7"}), "");
  EXPECT_EQ(config.training.trainIters, 7);
  EXPECT_EQ(errorsOf(kModel + kTraining + "train_tokens = 10240\n"),
            "job.toml:12:16: error: train_tokens and train_iters are both given; leave one out\n");
}

TEST_F(ChecksTest, StepsOrMinutesBetweenCheckpointsAreGiven) {
  EXPECT_EQ(
      errorsOf(kModel + kTraining + "[checkpoint]\ninterval = 5\ninterval_minutes = 10\n"),
      "job.toml:14:20: error: interval and interval_minutes say the same; give one of them\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[checkpoint]\ninterval = 5\n",
                     {"checkpoint.interval_minutes=10"}),
            "");
  EXPECT_EQ(errorsOf(kModel + kTraining + "[checkpoint]\nsave_best = true\n"),
            "job.toml:13:13: error: save_best saves the checkpoints of keep_best, and it names no "
            "set of validation data; set keep_best, such as \"data.validation\"\n");
}

TEST_F(ChecksTest, ADecayThatEndsEarlyIsNoMistake) {
  EXPECT_EQ(errorsOf(kModel + kTraining + "[lr_schedule]\ndecay_iters = 60\n"), "");
  ASSERT_EQ(config.settingWarnings.size(), 1u);
  EXPECT_NE(config.settingWarnings[0].find("job.toml:13:15: lr_schedule.decay_iters = 60 ends the "
                                           "decay before the run: the last 40 of 100 steps"),
            std::string::npos)
      << config.settingWarnings[0];
  EXPECT_EQ(errorsOf(kModel + kTraining), "");
  EXPECT_TRUE(config.settingWarnings.empty());
}

TEST_F(ChecksTest, ValidationMayBeTakenAway) {
  const std::string files = "[data]\ntrain = \"a.bin\"\nvalidation = \"v.bin\"\n[monitoring]\n"
                            "validation_interval = 10\n";
  EXPECT_EQ(errorsOf(kModel + kTraining + files, {"data.validation=[]"}), "");
}

TEST_F(ChecksTest, StepsThatAreNotKnownGiveNoFurtherMistake) {
  EXPECT_EQ(errorsOf(kModel +
                     "[training]\nsequence_length = 0\nbatch_size = 8\nmicro_batch_size = 2\n"
                     "train_tokens = 1000\n[lr_schedule]\nwarmup_iters = 5\n"),
            "job.toml:8:19: error: training.sequence_length is 0; it must be from 1 to 67108864\n");
}

TEST_F(ChecksTest, AMistakeOfAnOverrideIsTheOverrides) {
  EXPECT_EQ(errorsOf(kModel + kTraining, {"lr_schedule.decay_iters=101"}),
            "--set: error: decay_iters = 101 is more than train_iters = 100\n");
}

TEST_F(ChecksTest, ValidationNeedsData) {
  EXPECT_EQ(errorsOf(kModel + kTraining +
                     "[data]\ntrain = \"a.bin\"\n[monitoring]\nvalidation_interval = 5\n"),
            "job.toml:15:23: error: validation_interval = 5 needs data: give 'validation' in "
            "[data] or [[validation]], or set it to 0\n");
}

TEST_F(ChecksTest, Device) {
  checkDevice = [](const std::string &device) -> Result<void> {
    if (device == "gpu")
      return Error{"it must be cpu or cuda:sm_XY, such as cuda:sm_90a"};
    return {};
  };
  EXPECT_EQ(errorsOf(kModel + kTraining + "[target]\ndevice = \"gpu\"\n"),
            "job.toml:13:10: error: target.device is \"gpu\"; it must be cpu or cuda:sm_XY, such "
            "as cuda:sm_90a\n");
  for (const char *device : {"cpu", "cuda:sm_80", "cuda:sm_90a", "cuda:sm_100"})
    EXPECT_EQ(errorsOf(kModel + kTraining, {std::string("target.device=") + device}), "");
}

TEST_F(ChecksTest, AllMistakesAtOnceInTheOrderOfTheFile) {
  const std::string errors =
      errorsOf("[model]\nvocab_size = 0\nhidden_size = 64\nintermediate_size = 176\n"
               "num_attention_heads = 5\nrope_tetha = 3\n[training]\nsequence_length = 32\n"
               "batch_size = 8\nmicro_batch_size = 3\ntrain_iters = 10\n"
               "[lr_schedule]\nstyle = \"cosin\"\ndecay_iters = 11\n",
               {"memory.budget=1XB"});
  EXPECT_EQ(errors,
            "job.toml:1:1: error: missing required key 'num_hidden_layers' in [model]\n"
            "job.toml:2:14: error: model.vocab_size is 0; it must be from 1 to 2147483647\n"
            "job.toml:5:23: error: num_attention_heads = 5 does not divide hidden_size = 64; use 4 "
            "or 8 heads, or give head_dim\n"
            "job.toml:6:1: error: unknown key 'rope_tetha' in [model]; did you mean 'rope_theta'?\n"
            "job.toml:10:20: error: micro_batch_size = 3 (MBS) x 1 devices does not divide "
            "batch_size = 8 (GBS), so there is no whole number of accumulation steps (GAS); use "
            "micro_batch_size = 2 or 4 or batch_size = 6 or 9\n"
            "job.toml:13:9: error: lr_schedule.style is \"cosin\"; it must be one of constant, "
            "linear, cosine, wsd, inverse_sqrt, piecewise; did you mean 'cosine'?\n"
            "job.toml:14:15: error: decay_iters = 11 is more than train_iters = 10\n"
            "--set: error: memory.budget: unknown unit 'XB' in \"1XB\"; units are B, KB, MB, GB, "
            "TB, KiB, MiB, GiB, TiB\n");
}

TEST_F(ChecksTest, Defaults) {
  ASSERT_EQ(errorsOf(kModel + kTraining), "");
  EXPECT_EQ(config.model.architecture, "llama");
  EXPECT_EQ(config.model.numKeyValueHeads, 4);
  EXPECT_EQ(config.model.headDim, 16);
  EXPECT_EQ(config.model.maxPositionEmbeddings, 32);
  EXPECT_EQ(config.model.initializerRange, 0.02);
  EXPECT_EQ(config.training.computeDType, DataType::BF16);
  EXPECT_EQ(config.training.gradientAccumulationSteps, 4);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_FALSE(config.monitoring.logits);
  EXPECT_EQ(config.target.device, "cpu");
  EXPECT_EQ(config.directory, directory.string());
  EXPECT_EQ(config.text, kModel + kTraining);
}

TEST_F(ChecksTest, RelativePathsGetAnAbsoluteFolder) {
  write("job.toml", kModel + kTraining);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory);
  const Result<Config> loaded = loadConfig("job.toml", {"data.train=x/a.bin"}, modelFamilies());
  std::filesystem::current_path(before);
  ASSERT_TRUE(bool(loaded)) << loaded.error().message;
  EXPECT_EQ(loaded->path, "job.toml");
  EXPECT_EQ(loaded->directory, std::filesystem::canonical(directory).string());
  EXPECT_EQ(loaded->data.train, std::vector<std::string>{"x/a.bin"});
}

TEST_F(ChecksTest, SizesAndAliases) {
  const std::pair<const char *, uint64_t> sizes[] = {{"4096", 4096},
                                                     {"\"4096\"", 4096},
                                                     {"\"5B\"", 5},
                                                     {"\"2KB\"", 2000},
                                                     {"\"2KiB\"", 2048},
                                                     {"\"1.5 GiB\"", 1610612736},
                                                     {"\"80GB\"", 80000000000},
                                                     {"\"3MiB\"", 3145728},
                                                     {"\"7MB\"", 7000000},
                                                     {"\"1TiB\"", 1ull << 40},
                                                     {"\"1TB\"", 1000000000000}};
  for (const auto &[text, bytes] : sizes) {
    ASSERT_EQ(errorsOf(kModel + kTraining + "[memory]\nbudget = " + text + "\n"), "") << text;
    EXPECT_EQ(config.memory.budget, bytes) << text;
  }
  ASSERT_EQ(errorsOf(kModel + kTraining,
                     {"distributed.strategy=FULL_SHARD", "training.compute_dtype=bfloat16"}),
            "");
  EXPECT_EQ(config.distributed.strategy, ShardingStrategy::Zero3);
  EXPECT_EQ(config.training.computeDType, DataType::BF16);
}

TEST_F(ChecksTest, SettingsCarryTheResolvedValues) {
  ASSERT_EQ(
      errorsOf(kModel + kTraining, {"distributed.strategy=full_shard", "memory.budget=1KiB",
                                    "data.train=[\"a\", \"b\"]", "training.micro_batch_size=auto"}),
      "");
  auto find = [&](const std::string &key) -> const Setting & {
    for (const Setting &setting : config.settings)
      if (setting.key == key)
        return setting;
    static const Setting none;
    ADD_FAILURE() << "no setting " << key;
    return none;
  };
  using Type = plan::SettingType;
  EXPECT_EQ(config.settings.front().key, "model.config");
  EXPECT_EQ(config.settings.back().key, "target.peak_tflops");
  EXPECT_EQ(find("distributed.strategy").value, "zero3");
  EXPECT_EQ(find("distributed.strategy").choices,
            (std::vector<std::string>{"no_shard", "zero1", "zero2", "zero3", "hybrid_shard",
                                      "hybrid_shard_zero2"}));
  EXPECT_EQ(find("memory.budget").value, "1024");
  EXPECT_EQ(find("memory.budget").type, Type::Integer);
  EXPECT_EQ(find("training.micro_batch_size").value, "8");
  EXPECT_EQ(find("lr_schedule.lr").value, "0.0003");
  EXPECT_EQ(find("lr_schedule.lr").type, Type::Float);
  EXPECT_EQ(find("lr_schedule.lr").minimum, 0);
  EXPECT_EQ(find("lr_schedule.lr").maximum, 10);
  EXPECT_EQ(find("lr_schedule.decay_iters").value, "100");
  EXPECT_EQ(find("data.train").type, Type::StringList);
  EXPECT_EQ(find("data.train").values, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(find("model.tie_word_embeddings").type, Type::Boolean);
  EXPECT_EQ(find("model.tie_word_embeddings").value, "false");
  EXPECT_FALSE(find("training.batch_size").doc.empty());
}

TEST_F(ChecksTest, SettingsHaveAnOrigin) {
  ASSERT_EQ(errorsOf(kModel + kTraining), "");
  auto find = [&](const std::string &key) {
    return *std::find_if(config.settings.begin(), config.settings.end(),
                         [&](const Setting &setting) { return setting.key == key; });
  };
  using Origin = SettingOrigin;
  EXPECT_EQ(find("training.sequence_length").origin, Origin::File);
  EXPECT_EQ(find("optimizer.beta1").origin, Origin::Default);
  EXPECT_EQ(find("lr_schedule.decay_iters").derivedFrom, "training.train_iters");
  EXPECT_EQ(find("lr_schedule.min_lr").derivedDivisor, 10);
  EXPECT_TRUE(find("lr_schedule.lr").identity);
  EXPECT_TRUE(find("model.rope_theta").identity);
  EXPECT_FALSE(find("training.micro_batch_size").identity);
  EXPECT_FALSE(find("training.train_iters").identity);
}

TEST_F(ChecksTest, AShuffleBlockHoldsWholeSequences) {
  const std::string base = kModel + kTraining + "[data]\n";
  EXPECT_EQ(errorsOf(base + "shuffle_block = 64\n"), "");
  const std::string errors = errorsOf(base + "shuffle_block = 40\n");
  EXPECT_NE(errors.find("error: shuffle_block = 40 is no multiple of sequence_length = 32; use 32 "
                        "or 64\n"),
            std::string::npos)
      << errors;
}

TEST_F(ChecksTest, ASequenceOfWholeDocumentsIsABlock) {
  const std::string base = kModel + kTraining + "[data]\npacking = \"best_fit\"\n";
  EXPECT_EQ(errorsOf(base), "");
  const std::string errors = errorsOf(base + "shuffle_block = 64\n");
  EXPECT_NE(errors.find("error: packing = \"best_fit\" fills sequences with whole documents, so "
                        "shuffle_block = 64 must be sequence_length = 32\n"),
            std::string::npos)
      << errors;
}

class SourcesTest : public ConfigTest {
protected:
  static std::string source(const std::string &keys) { return "[[data.source]]\n" + keys + "\n"; }
  const std::string web = source("name = \"web\"\npaths = [\"a.bin\", \"b.bin\"]\nweight = 0.7");
  const std::string code =
      source("name = \"code\"\npaths = \"c.bin\"\nweight = 3\nmax_epochs = 2.5");

  // Returns the error without its place.
  std::string errorOf(const std::string &text, const std::vector<std::string> &overrides = {}) {
    const std::string errors = errorsOf(kModel + kTraining + text, overrides);
    const size_t begin = errors.find(": error: ");
    EXPECT_EQ(errors.find('\n'), errors.size() - 1) << errors;
    return begin == std::string::npos ? errors
                                      : errors.substr(begin + 9, errors.size() - begin - 10);
  }
  const Setting *find(const std::string &key) {
    const auto found = std::ranges::find(config.settings, key, &Setting::key);
    return found == config.settings.end() ? nullptr : &*found;
  }
};

TEST_F(SourcesTest, AreReadAndSetByName) {
  ASSERT_EQ(errorsOf(kModel + kTraining + web + code, {"data.source.code.weight=0.3"}), "");
  ASSERT_EQ(config.data.sources.size(), 2u);
  EXPECT_EQ(config.data.sources["web"].paths, (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_EQ(config.data.sources["web"].weight, 0.7);
  EXPECT_EQ(config.data.sources["web"].maxEpochs, 0);
  EXPECT_EQ(config.data.sources["code"].paths, std::vector<std::string>{"c.bin"});
  EXPECT_EQ(config.data.sources["code"].weight, 0.3);
  EXPECT_EQ(config.data.sources["code"].maxEpochs, 2.5);
  const Setting *weight = find("data.source.code.weight");
  ASSERT_TRUE(weight);
  EXPECT_EQ(weight->value, "0.3");
  EXPECT_EQ(weight->origin, SettingOrigin::CompileSet);
  EXPECT_TRUE(weight->runTime && weight->identity);
  ASSERT_TRUE(find("data.source.web.max_epochs"));
  EXPECT_FALSE(find("data.source.web.max_epochs")->identity);
  EXPECT_EQ(find("data.source.web.paths")->values.size(), 2u);
  // Inline tables are the same.
  ASSERT_EQ(errorsOf(kModel + kTraining +
                     "[data]\nsource = [{ name = \"a\", paths = [\"a\"], weight = 1 }]\n"),
            "");
  EXPECT_EQ(config.data.sources["a"].weight, 1);
}

TEST_F(SourcesTest, MistakesAreNamed) {
  EXPECT_EQ(
      errorOf(source("paths = \"a\"\nweight = 1")),
      "a [[data.source]] has no name; give it a name of letters, digits, _ and -, such as name "
      "= \"web\"");
  EXPECT_EQ(errorOf(source("name = \"a.b\"\npaths = \"a\"\nweight = 1")),
            "a [[data.source]] cannot have this name; give it a name of letters, digits, _ and -, "
            "such as name = \"web\"");
  EXPECT_EQ(errorOf(web + source("name = \"web\"\npaths = \"d\"\nweight = 1")),
            "two [[data.source]] have the name 'web'; the other is in line 13");
  EXPECT_EQ(errorOf(source("name = \"a\"\nweight = 1")),
            "missing required key 'paths' in [[data.source]] a");
  EXPECT_EQ(errorOf(source("name = \"a\"\npaths = \"a\"")),
            "missing required key 'weight' in [[data.source]] a");
  EXPECT_EQ(errorOf(source("name = \"a\"\npaths = []\nweight = 1")),
            "[[data.source]] a has an empty list of paths; give it token files, or leave it out");
  EXPECT_EQ(errorOf(source("name = \"a\"\npaths = \"a\"\nweight = 0")),
            "data.source.a.weight is 0; it must be from 1e-09 to 1000000000000000");
  EXPECT_EQ(errorOf(source("name = \"a\"\npaths = \"a\"\nweight = 1\nwieght = 2")),
            "unknown key 'wieght' in [[data.source]] a; did you mean 'weight'?");
  EXPECT_EQ(
      errorOf(web + source("name = \"a\"\npaths = [\"d.bin\", \"b.bin\"]\nweight = 1")),
      "'b.bin' is in [[data.source]] web already; list it once, or set data.allow_repeats = true");
  const std::string digits = source("name = \"a\"\npaths = \"d.bin\"\nweight = 0.3471529001");
  EXPECT_EQ(errorOf(web + digits),
            "the order of the sources would repeat only after more than 16777216 blocks; give "
            "weights with fewer digits, such as 0.35 for 0.3471529");
  EXPECT_NE(errorsOf(kModel + kTraining + digits + web).find(":15:10: error: the order"),
            std::string::npos)
      << errorsOf(kModel + kTraining + digits + web);
  EXPECT_EQ(errorsOf(kModel + kTraining + digits), "") << "a source alone";
  EXPECT_EQ(errorOf("[data]\ntrain = \"a.bin\"\n" + web),
            "train and [[data.source]] (web) both say what to train on; set the paths of a table, "
            "such as "
            "data.source.web.paths, or leave train out");
  EXPECT_EQ(errorsOf(kModel + kTraining + web, {"data.train=a.bin"}), "") << "a later key";
  EXPECT_EQ(errorsOf(kModel + kTraining + "[data]\ntrain = \"a.bin\"\n" + web,
                     {"data.source.web.paths=a.bin"}),
            "")
      << "later tables";
  EXPECT_EQ(errorOf(web, {"data.train=a.bin", "data.source.web.weight=2"}),
            "train and [[data.source]] (web) both say what to train on; set the paths of a table, "
            "such as data.source.web.paths, or leave train out");
  EXPECT_EQ(errorOf("[data.source]\nname = \"a\"\n"),
            "'data.source' is a list of tables; write [[data.source]]");
  EXPECT_EQ(errorOf(web, {"data.source.wbe.weight=1"}),
            "the file has no [[data.source]] named 'wbe'; did you mean 'web'?");
  EXPECT_EQ(errorOf(web, {"data.source.web.wieght=1"}),
            "unknown key 'wieght' in [[data.source]] web; did you mean 'weight'?");
  EXPECT_EQ(errorOf(web, {"data.source=[]"}),
            "data.source is a list of tables; set one key of one of them, as in "
            "data.source.NAME.paths=...");
  EXPECT_EQ(errorOf(web + "[monitoring]\nvalidation_interval = 5\n"),
            "validation_interval = 5 needs data: give 'validation' in [data] or [[validation]], or "
            "set it to 0");
}

TEST_F(ChecksTest, ValidationSetsAreReadAndSetByName) {
  const std::string text = kModel + kTraining +
                           "[[validation]]\nname = \"web\"\npaths = \"web.bin\"\n"
                           "[[validation]]\nname = \"code\"\npaths = [\"a.bin\", \"b.bin\"]\n"
                           "interval = 50\niters = 3\n"
                           "[monitoring]\nvalidation_interval = 20\n[data]\ntrain = \"t.bin\"\n";
  ASSERT_EQ(errorsOf(text, {"validation.code.iters=0"}), "");
  ASSERT_EQ(config.validations.size(), 2u);
  EXPECT_EQ(config.validations["web"].paths, std::vector<std::string>{"web.bin"});
  EXPECT_EQ(config.validations["web"].interval, 20) << "that of [monitoring]";
  EXPECT_EQ(config.validations["web"].iters, 10) << "that of [monitoring]";
  EXPECT_EQ(config.validations["code"].paths, (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_EQ(config.validations["code"].interval, 50);
  EXPECT_EQ(config.validations["code"].iters, 0);
  std::vector<std::string> keys;
  for (const Setting &setting : config.settings)
    if (setting.key.starts_with("validation.")) {
      keys.push_back(setting.key);
      EXPECT_TRUE(setting.runTime && !setting.identity) << setting.key;
    }
  EXPECT_EQ(keys, (std::vector<std::string>{"validation.web.paths", "validation.web.interval",
                                            "validation.web.iters", "validation.code.paths",
                                            "validation.code.interval", "validation.code.iters"}));
}

TEST_F(ChecksTest, MistakesInValidationSetsAreNamed) {
  const std::string base = kModel + kTraining;
  EXPECT_EQ(errorsOf(base + "[data]\nvalidation = \"a.bin\"\n"
                            "[[validation]]\nname = \"web\"\npaths = \"b.bin\"\n"),
            "job.toml:13:14: error: validation and [[validation]] (web) both say what to validate "
            "with; set the paths of a table, such as validation.web.paths, or leave validation "
            "out\n");
  const std::string web = base + "[[validation]]\nname = \"web\"\npaths = \"b.bin\"\n";
  EXPECT_EQ(errorsOf(web, {"data.validation=a.bin"}), "") << "a later key";
  EXPECT_NE(errorsOf(web, {"data.validation=a.bin", "checkpoint.keep_best=web"}), "")
      << "its tables do not count";
  EXPECT_EQ(errorsOf(base + "[[validation]]\nname = \"web\"\npaths = []\n"),
            "job.toml:14:9: error: [[validation]] web has an empty list of paths; give it token "
            "files, or leave it out\n");
  EXPECT_EQ(errorsOf(base + "[[validation]]\nname = \"web\"\n"),
            "job.toml:13:8: error: missing required key 'paths' in [[validation]] web\n");
  EXPECT_EQ(errorsOf(base + "[[validation]]\npaths = \"a.bin\"\n"),
            "job.toml:12:1: error: a [[validation]] has no name; give it a name of letters, "
            "digits, _ and -, such as name = \"web\"\n");
  EXPECT_EQ(errorsOf(base + "[[validation]]\nname = \"web\"\npaths = \"a\"\ninterval = -1\n"),
            "job.toml:15:12: error: validation.web.interval is -1; it must be from 0 to "
            "1000000000000\n");
  EXPECT_EQ(errorsOf(base + "[validation]\npaths = \"a\"\n"),
            "job.toml:12:2: error: 'validation' is a list of tables; write [[validation]]\n");
  EXPECT_EQ(errorsOf(base + "[[validation]]\nname = \"web\"\npaths = \"a\"\n",
                     {"validation.wbe.iters=1"}),
            "--set: error: the file has no [[validation]] named 'wbe'; did you mean 'web'?\n");
}

TEST_F(ChecksTest, NewTokensFitInASequenceWithTheirPrompt) {
  const std::string keys = "[generation]\nprompts = \"p.txt\"\nmax_new_tokens = ";
  EXPECT_EQ(errorsOf(kModel + kTraining + keys + "2\n"), "");
  EXPECT_NE(errorsOf(kModel + kTraining + keys + "100000\n")
                .find("max_new_tokens = 100000 must be below sequence_length"),
            std::string::npos);
}

TEST_F(ChecksTest, RunTimeChangeableSettings) {
  ASSERT_EQ(errorsOf(kModel + kTraining), "");
  std::vector<std::string> changeable;
  for (const Setting &setting : config.settings)
    if (setting.runTime)
      changeable.push_back(setting.key);
  EXPECT_EQ(changeable, (std::vector<std::string>{"training.train_iters",
                                                  "training.document_loss_mask",
                                                  "training.seed",
                                                  "optimizer.weight_decay",
                                                  "optimizer.beta1",
                                                  "optimizer.beta2",
                                                  "optimizer.eps",
                                                  "optimizer.muon_lr",
                                                  "optimizer.muon_momentum",
                                                  "optimizer.router_bias_update_speed",
                                                  "optimizer.muon_eps",
                                                  "optimizer.clip_grad",
                                                  "lr_schedule.style",
                                                  "lr_schedule.lr",
                                                  "lr_schedule.min_lr",
                                                  "lr_schedule.min_lr_ratio",
                                                  "lr_schedule.warmup_iters",
                                                  "lr_schedule.warmup_ratio",
                                                  "lr_schedule.warmup_init",
                                                  "lr_schedule.decay_iters",
                                                  "lr_schedule.wsd_decay_fraction",
                                                  "lr_schedule.wsd_decay_style",
                                                  "lr_schedule.points",
                                                  "lr_schedule.restart_step",
                                                  "data.train",
                                                  "data.validation",
                                                  "data.end_of_document",
                                                  "data.format",
                                                  "data.shuffle_block",
                                                  "data.packing",
                                                  "data.allow_repeats",
                                                  "data.num_workers",
                                                  "checkpoint.interval",
                                                  "checkpoint.interval_minutes",
                                                  "checkpoint.keep",
                                                  "checkpoint.keep_every",
                                                  "checkpoint.keep_best",
                                                  "checkpoint.save_best",
                                                  "checkpoint.background",
                                                  "checkpoint.export_interval",
                                                  "checkpoint.export_command",
                                                  "monitoring.log_interval",
                                                  "monitoring.validation_interval",
                                                  "monitoring.validation_iters",
                                                  "monitoring.tensorboard",
                                                  "monitoring.prometheus",
                                                  "monitoring.on_event",
                                                  "monitoring.wandb_project",
                                                  "monitoring.wandb_entity",
                                                  "monitoring.wandb_group",
                                                  "monitoring.wandb_name",
                                                  "generation.prompts",
                                                  "generation.interval",
                                                  "generation.max_new_tokens",
                                                  "generation.temperature",
                                                  "generation.top_p",
                                                  "guard.action",
                                                  "guard.on_spike",
                                                  "guard.rollbacks",
                                                  "guard.refund",
                                                  "guard.skip_steps",
                                                  "guard.window",
                                                  "guard.spike",
                                                  "guard.patience",
                                                  "guard.rise",
                                                  "guard.plateau",
                                                  "guard.validation",
                                                  "guard.compare_weights",
                                                  "guard.update_ratio",
                                                  "guard.dead_expert",
                                                  "target.peak_tflops"}));
}

} // namespace
} // namespace lmc
