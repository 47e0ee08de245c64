// A family that has keys of its own: they are read, checked, documented, imported and exported as
// all others are.

#include "ground/config/ModelFamily.h"
#include "ground/config/Checks.h"
#include "ground/config/keys/Traits.h"
#include "plan_generated.h"
#include "test/ground/config/ConfigFixture.h"

namespace lmc {
namespace {

using namespace config::keys;

void checkCap(const config::CheckedJob &job) {
  if (job.sound({"model.softcap", "model.scaled"}) &&
      job.config.model.familyValue<bool>("scaled") &&
      job.config.model.familyValue<double>("softcap") == 0)
    job.error("model.softcap", "scaled needs a softcap");
}

const ModelFamily &capped() {
  static const ModelFamily family = {
      .name = "capped",
      .modelType = "capped_lm",
      .className = "CappedForCausalLM",
      .keys = {familyKey("softcap", 30.0, range(0, 100), "Bound of the logits."),
               familyKey("full_every", int64_t(6), range(1, 64, "layers"),
                         "Every n-th layer sees the whole sequence."),
               familyKey("scaled", false, "Scaled embeddings."),
               familyKey("cap_style", std::string("tanh"), choices({"tanh", "clamp"}),
                         "How logits are bounded.")},
      .ignored = {"mlp_bias", "sliding_window"},
      .defaults = {{"softcap", 50.0}, {"hidden_act", "silu"}},
      .check = checkCap,
  };
  return family;
}

class ModelFamilyTest : public ConfigTest {
protected:
  ModelFamilyTest() { families.push_back(&capped()); }

  const std::string own = kModel + "architecture = \"capped\"\n";
};

TEST_F(ModelFamilyTest, KeysHaveInitialValues) {
  ASSERT_EQ(errorsOf(own + kTraining), "");
  EXPECT_EQ(config.model.family, &capped());
  EXPECT_EQ(config.model.familyValue<double>("softcap"), 30.0);
  EXPECT_EQ(config.model.familyValue<int64_t>("full_every"), 6);
  EXPECT_EQ(config.model.familyValue<bool>("scaled"), false);
  EXPECT_EQ(config.model.familyValue<std::string>("cap_style"), "tanh");
}

TEST_F(ModelFamilyTest, KeysAreReadAndRecorded) {
  ASSERT_EQ(errorsOf(own + "softcap = 20\nfull_every = 3\ncap_style = \"clamp\"\n" + kTraining,
                     {"model.scaled=true"}),
            "");
  EXPECT_EQ(config.model.familyValue<double>("softcap"), 20.0);
  EXPECT_EQ(config.model.familyValue<int64_t>("full_every"), 3);
  EXPECT_EQ(config.model.familyValue<bool>("scaled"), true);
  EXPECT_EQ(config.model.familyValue<std::string>("cap_style"), "clamp");
  size_t found = 0;
  for (const Setting &setting : config.settings)
    if (setting.key == "model.full_every") {
      EXPECT_EQ(setting.value, "3");
      EXPECT_EQ(setting.maximum, 64);
      ++found;
    }
  EXPECT_EQ(found, 1u);
}

TEST_F(ModelFamilyTest, MistakesInThemAreReported) {
  EXPECT_EQ(errorsOf(own +
                     "softcap = 101\nfull_every = 2.5\ncap_stile = \"tanh\"\n"
                     "scaled = 1\n" +
                     kTraining),
            "job.toml:8:11: error: model.softcap is 101; it must be from 0 to 100\n"
            "job.toml:9:14: error: model.full_every must be an integer, not 2.5\n"
            "job.toml:10:1: error: unknown key 'cap_stile' in [model]; did you mean 'cap_style'?\n"
            "job.toml:11:10: error: model.scaled must be true or false, not 1\n");
}

// In a job of another family they would silently do nothing.
TEST_F(ModelFamilyTest, KeysBelongToTheirFamilies) {
  EXPECT_EQ(errorsOf(kModel + "softcap = 20\n" + kTraining),
            "job.toml:7:11: error: softcap is a key of architecture \"capped\", not of "
            "\"llama\"\n");
  ASSERT_EQ(errorsOf(kModel + kTraining), "");
  for (const Setting &setting : config.settings)
    EXPECT_NE(setting.key, "model.softcap");
  families.pop_back();
  EXPECT_EQ(errorsOf(kModel + "softcap = 20\n" + kTraining),
            "job.toml:7:1: error: unknown key 'softcap' in [model]\n");
}

// GPT-2 has learned positions, and none of RoPE's keys.
TEST_F(ModelFamilyTest, KeysThatAFamilyLacksMayNotBeSet) {
  const std::string gpt2 = "[model]\narchitecture = \"gpt2\"\nvocab_size = 128\nn_embd = 64\n"
                           "n_layer = 2\nn_head = 4\n";
  ASSERT_EQ(errorsOf(gpt2 + kTraining), "");
  EXPECT_EQ(config.model.intermediateSize, 256);
  EXPECT_EQ(config.model.maxPositionEmbeddings, config.training.sequenceLength);
  for (const Setting &setting : config.settings)
    EXPECT_NE(setting.key, "model.rope_theta");
  EXPECT_EQ(errorsOf(gpt2 + "rope_theta = 1e4\n" + kTraining),
            "job.toml:7:14: error: rope_theta is a key of architecture \"llama\", \"mistral\", "
            "\"qwen2\", \"qwen3\", \"olmo2\", \"mixtral\", \"qwen3_moe\", \"olmoe\", \"dots1\" and "
            "\"capped\", not of "
            "\"gpt2\"\n");
  auto withHeads = [&](const std::string &heads) {
    std::string text = gpt2;
    return errorsOf(text.replace(text.find("n_head = 4"), 10, "n_head = " + heads) + kTraining);
  };
  EXPECT_EQ(withHeads("5"), "job.toml:6:10: error: num_attention_heads = 5 does not divide "
                            "hidden_size = 64; use 4 or 8 heads\n");
  EXPECT_EQ(withHeads("64"), "job.toml:6:10: error: the width of a head, hidden_size / "
                             "num_attention_heads = 1 is odd; it must be even\n");
  EXPECT_NE(errorsOf(gpt2 + "rope_scaling = { rope_type = \"linear\", factor = 2 }\n" + kTraining)
                .find("not of \"gpt2\""),
            std::string::npos);
  EXPECT_NE(errorsOf(gpt2 + kTraining + "[target]\nmake_intermediate_size_divisible_by = 64\n")
                .find("pads MLPs with a gate, which gpt2 does not have; leave it out"),
            std::string::npos);
  const std::string phases = "[[phase]]\nname = \"a\"\nshare = 0.5\n[[phase]]\nname = \"b\"\n"
                             "share = 0.5\n";
  EXPECT_NE(errorsOf(gpt2 + kTraining + phases).find("a job with phases must give their number"),
            std::string::npos);
  EXPECT_EQ(errorsOf(gpt2 + "n_positions = 64\n" + kTraining + phases), "");
}

TEST_F(ModelFamilyTest, ItsOwnCheck) {
  EXPECT_EQ(errorsOf(own + "softcap = 0\nscaled = true\n" + kTraining),
            "job.toml:8:11: error: scaled needs a softcap\n");
}

// Its checkpoints would say nothing of these keys.
TEST_F(ModelFamilyTest, KeysThatItsClassIgnoresMayNotBeSet) {
  EXPECT_EQ(
      errorsOf(own + "attention_bias = true\nmlp_bias = true\nsliding_window = 8\n" + kTraining),
      "job.toml:9:12: error: mlp_bias does not go with architecture \"capped\": checkpoints "
      "could not be exported, as Hugging Face's CappedForCausalLM ignores it\n"
      "job.toml:10:18: error: sliding_window does not go with architecture \"capped\": "
      "checkpoints could not be exported, as Hugging Face's CappedForCausalLM ignores it\n");
  EXPECT_EQ(errorsOf(own + "mlp_bias = false\nsliding_window = 0\n" + kTraining), "");
}

TEST_F(ModelFamilyTest, ConfigJsonThereAndBack) {
  ASSERT_EQ(errorsOf(own + "softcap = 20\nscaled = true\n" + kTraining), "");
  const std::string text = huggingFaceConfig(config);
  write("config.json", text);
  const std::string job = "[model]\nconfig = \"config.json\"\n" + kTraining;
  ASSERT_EQ(errorsOf(job), "");
  EXPECT_EQ(huggingFaceConfig(config), text);
  EXPECT_EQ(config.model.architecture, "capped");
  EXPECT_EQ(config.model.familyValue<double>("softcap"), 20.0);
  EXPECT_EQ(config.model.familyValue<bool>("scaled"), true);

  config::Json json = config::Json::parse(text);
  EXPECT_EQ(json["architectures"][0], "CappedForCausalLM");
  EXPECT_EQ(json["model_type"], "capped_lm");
  EXPECT_EQ(json["softcap"], 20.0);
  json.erase("softcap"); // what transformers assumes then
  json.erase("model_type");
  write("config.json", json.dump());
  ASSERT_EQ(errorsOf(job), "");
  EXPECT_EQ(config.model.familyValue<double>("softcap"), 50.0);
  json["architectures"] = {"OtherForCausalLM"};
  write("config.json", json.dump());
  EXPECT_EQ(errorsOf(job),
            "config.json: error: model 'OtherForCausalLM' is not supported; llama, "
            "mistral, qwen2, qwen3, olmo2, gpt2, mixtral, qwen3_moe, olmoe, dots1 and capped_lm "
            "are\n");
}

// Mixtral has 2 experts per token, Qwen 3 has 8.
TEST_F(ModelFamilyTest, AKeyOfSeveralFamiliesHasADefaultForEach) {
  auto chosen = [&](const std::string &more) {
    EXPECT_EQ(errorsOf(kModel + more + kTraining), "");
    for (const Setting &setting : config.settings)
      if (setting.key == "model.num_experts_per_tok") {
        EXPECT_EQ(setting.value,
                  std::to_string(config.model.familyValue<int64_t>("num_experts_per_tok")));
      }
    return config.model.familyValue<int64_t>("num_experts_per_tok");
  };
  const std::string qwen = "architecture = \"qwen3_moe\"\nmoe_intermediate_size = 32\n";
  EXPECT_EQ(chosen("architecture = \"mixtral\"\n"), 2);
  EXPECT_EQ(chosen(qwen), 8);
  EXPECT_EQ(chosen(qwen + "num_experts_per_tok = 2\n"), 2);
  EXPECT_NE(configReference(families).find("| `num_experts_per_tok` | integer | `2`; of "
                                           "`qwen3_moe` `8`; of `olmoe` `8`; of `dots1` `6` |"),
            std::string::npos);
}

TEST_F(ModelFamilyTest, ListsOfIntegers) {
  const std::string qwen = "architecture = \"qwen3_moe\"\nmoe_intermediate_size = 32\n";
  auto withLayers = [&](const std::string &list) {
    return errorsOf(kModel + qwen + "mlp_only_layers = " + list + "\n" + kTraining);
  };
  auto layers = [&] { return config.model.familyValue<std::vector<int64_t>>("mlp_only_layers"); };
  ASSERT_EQ(withLayers("[]"), "");
  EXPECT_TRUE(layers().empty());
  ASSERT_EQ(withLayers("[1, 0]"), "");
  EXPECT_EQ(layers(), (std::vector<int64_t>{1, 0}));
  for (const Setting &setting : config.settings)
    if (setting.key == "model.mlp_only_layers") {
      EXPECT_EQ(setting.type, plan::SettingType::StringList);
      EXPECT_EQ(setting.values, (std::vector<std::string>{"1", "0"}));
      EXPECT_TRUE(setting.identity);
    }
  ASSERT_EQ(errorsOf(kModel + qwen + kTraining, {"model.mlp_only_layers=[1]"}), "");
  EXPECT_EQ(layers(), std::vector<int64_t>{1});
  const std::string must =
      "job.toml:9:19: error: model.mlp_only_layers must be a list of integers, "
      "not ";
  EXPECT_EQ(withLayers("1"), must + "1\n");
  EXPECT_EQ(withLayers("[0, \"1\"]"), must + "a list of other things\n");
  EXPECT_EQ(withLayers("[\"0\"]"), must + "a list\n");
  EXPECT_EQ(withLayers("[0.5]"), must + "a list of other things\n");
  EXPECT_EQ(withLayers("[0, -1]"),
            "job.toml:9:19: error: model.mlp_only_layers has -1; its numbers "
            "must be from 0 to 4095\n");
  EXPECT_EQ(withLayers("[2]"),
            "job.toml:9:19: error: mlp_only_layers has 2; the model has layers 0 "
            "to 1\n");
  EXPECT_NE(errorsOf("[model]\nvocab_size = [1, 2]\n")
                .find("model.vocab_size must be an integer, not a list of integers\n"),
            std::string::npos);
}

TEST_F(ModelFamilyTest, TheReferenceHasThem) {
  const std::string page = configReference(families);
  EXPECT_NE(page.find("| `softcap` | number | `30` | from 0 to 100 | *identity* | Bound of the "
                      "logits. Only of `capped`. |\n"),
            std::string::npos);
  EXPECT_NE(page.find("(llama, mistral, qwen2, qwen3, olmo2, gpt2, mixtral, qwen3_moe, olmoe, "
                      "dots1 or capped_lm)"),
            std::string::npos);
  EXPECT_LT(page.find("| `softcap` |"), page.find("## [model.rope_scaling]"));
}

} // namespace
} // namespace lmc
