// config.json in and out.

#include "test/ground/config/ConfigFixture.h"
#include "test/models/ClosedForms.h"

#include <nlohmann/json.hpp>

namespace lmc {
namespace {

using Json = nlohmann::json;

class HuggingFaceTest : public ConfigTest {
protected:
  const std::string job = "[model]\nconfig = \"config.json\"\n";
  Json llama = {{"architectures", {"LlamaForCausalLM"}},
                {"model_type", "llama"},
                {"attention_bias", false},
                {"attention_dropout", 0.0},
                {"bos_token_id", 128000},
                {"hidden_act", "silu"},
                {"hidden_size", 64},
                {"head_dim", nullptr},
                {"initializer_range", 0.02},
                {"intermediate_size", 176},
                {"max_position_embeddings", 131072},
                {"mlp_bias", false},
                {"num_attention_heads", 4},
                {"num_hidden_layers", 2},
                {"num_key_value_heads", 2},
                {"pretraining_tp", 1},
                {"rms_norm_eps", 1e-05},
                {"rope_scaling",
                 {{"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 8192},
                  {"rope_type", "llama3"}}},
                {"rope_theta", 500000.0},
                {"tie_word_embeddings", true},
                {"torch_dtype", "bfloat16"},
                {"transformers_version", "4.43.0"},
                {"use_cache", true},
                {"vocab_size", 128}};

  // Both files are written to the test's folder.
  std::string errorsWith(const Json &model, const std::string &more = "") {
    write("config.json", model.dump(2));
    return errorsOf(job + more + kTraining);
  }
};

TEST_F(HuggingFaceTest, LlamaIsImported) {
  ASSERT_EQ(errorsWith(llama), "");
  const ModelConfig &model = config.model;
  EXPECT_EQ(model.architecture, "llama");
  EXPECT_EQ(model.vocabSize, 128);
  EXPECT_EQ(model.hiddenSize, 64);
  EXPECT_EQ(model.intermediateSize, 176);
  EXPECT_EQ(model.numHiddenLayers, 2);
  EXPECT_EQ(model.numAttentionHeads, 4);
  EXPECT_EQ(model.numKeyValueHeads, 2);
  EXPECT_EQ(model.headDim, 16);
  EXPECT_EQ(model.maxPositionEmbeddings, 131072);
  EXPECT_EQ(model.ropeTheta, 500000.0);
  EXPECT_EQ(model.rmsNormEps, 1e-5);
  EXPECT_TRUE(model.tieWordEmbeddings);
  EXPECT_EQ(model.ropeScaling.type, RopeScalingType::Llama3);
  EXPECT_EQ(model.ropeScaling.factor, 8.0);
  EXPECT_EQ(model.ropeScaling.originalMaxPositionEmbeddings, 8192);
}

TEST_F(HuggingFaceTest, RopeParametersOfTransformers5) {
  llama["rope_parameters"] = llama["rope_scaling"];
  llama["rope_parameters"]["rope_theta"] = 12345.0;
  llama.erase("rope_scaling");
  llama.erase("rope_theta");
  ASSERT_EQ(errorsWith(llama), "");
  EXPECT_EQ(config.model.ropeTheta, 12345.0);
  EXPECT_EQ(config.model.ropeScaling.type, RopeScalingType::Llama3);

  llama["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000}};
  ASSERT_EQ(errorsWith(llama), "");
  EXPECT_EQ(config.model.ropeTheta, 10000.0);
  EXPECT_EQ(config.model.ropeScaling.type, RopeScalingType::None);
}

TEST_F(HuggingFaceTest, OlderSpellingOfTheRopeType) {
  llama["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  ASSERT_EQ(errorsWith(llama), "");
  EXPECT_EQ(config.model.ropeScaling.type, RopeScalingType::Linear);
  llama["rope_scaling"] = {{"type", "dynamic"}, {"rope_type", "dynamic"}, {"factor", 4.0}};
  ASSERT_EQ(errorsWith(llama), "");
  EXPECT_EQ(config.model.ropeScaling.type, RopeScalingType::Dynamic);
}

TEST_F(HuggingFaceTest, Mistral) {
  Json mistral = llama;
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral["model_type"] = "mistral";
  mistral.erase("rope_scaling");
  mistral["sliding_window"] = 16;
  ASSERT_EQ(errorsWith(mistral), "");
  EXPECT_EQ(config.model.architecture, "mistral");
  EXPECT_EQ(config.model.slidingWindow, 16);
  mistral["sliding_window"] = nullptr;
  ASSERT_EQ(errorsWith(mistral), "");
  EXPECT_EQ(config.model.slidingWindow, 0);
}

// The config.json of openai-community/gpt2, without what concerns texts.
TEST_F(HuggingFaceTest, Gpt2) {
  Json gpt2 = {{"activation_function", "gelu_new"},
               {"architectures", {"GPT2LMHeadModel"}},
               {"attn_pdrop", 0.1},
               {"embd_pdrop", 0.1},
               {"initializer_range", 0.02},
               {"layer_norm_epsilon", 1e-05},
               {"model_type", "gpt2"},
               {"n_ctx", 1024},
               {"n_embd", 768},
               {"n_head", 12},
               {"n_layer", 12},
               {"n_positions", 1024},
               {"resid_pdrop", 0.1},
               {"summary_type", "cls_index"},
               {"vocab_size", 50257}};
  ASSERT_EQ(errorsWith(gpt2), "");
  EXPECT_EQ(test::parameterCount(config.model), 124'439'808u);
  EXPECT_EQ(config.model.maxPositionEmbeddings, 1024);
  EXPECT_EQ(config.model.intermediateSize, 3072);
  EXPECT_EQ(config.model.numKeyValueHeads, 12);
  EXPECT_EQ(config.model.headDim, 64);
  EXPECT_TRUE(config.model.tieWordEmbeddings);
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_TRUE(config.warnings[0].ends_with(
      "config.json: 'resid_pdrop' = 0.1, 'embd_pdrop' = 0.1 and 'attn_pdrop' = 0.1 are read as 0, "
      "because lmc has no dropout"))
      << config.warnings[0];
  Json dry = gpt2;
  for (const char *key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
    dry[key] = 0.0;
  dry["n_inner"] = 100;
  ASSERT_EQ(errorsWith(dry), "");
  EXPECT_TRUE(config.warnings.empty());
  EXPECT_EQ(config.model.intermediateSize, 100);

  const std::string text = huggingFaceConfig(config);
  const Json written = Json::parse(text);
  EXPECT_EQ(written["n_inner"], 100);
  EXPECT_EQ(written["architectures"][0], "GPT2LMHeadModel");
  EXPECT_FALSE(written.contains("rope_theta") || written.contains("hidden_size"));
  write("config.json", text);
  ASSERT_EQ(errorsOf(job + kTraining), "");
  EXPECT_EQ(huggingFaceConfig(config), text);

  auto refused = [&](const char *key, const Json &value) {
    Json other = gpt2;
    other[key] = value;
    return errorsWith(other);
  };
  EXPECT_EQ(refused("scale_attn_by_inverse_layer_idx", true),
            "config.json: error: 'scale_attn_by_inverse_layer_idx' is true; lmc has only false\n");
  EXPECT_EQ(refused("activation_function", "relu"),
            "config.json: error: 'activation_function' is \"relu\"; lmc has only \"gelu_new\"\n");
  EXPECT_EQ(refused("scale_attn_weights", false),
            "config.json: error: 'scale_attn_weights' is false; lmc has only true\n");
}

TEST_F(HuggingFaceTest, AbsentKeysTakeTheDefaultsOfTransformers) {
  Json sparse = {{"model_type", "mistral"}, {"vocab_size", 128},      {"hidden_size", 128},
                 {"intermediate_size", 8},  {"num_hidden_layers", 1}, {"num_attention_heads", 16}};
  ASSERT_EQ(errorsWith(sparse), "");
  EXPECT_EQ(config.model.slidingWindow, 4096);
  EXPECT_EQ(config.model.numKeyValueHeads, 8);
  EXPECT_EQ(config.model.rmsNormEps, 1e-6);
  EXPECT_EQ(config.model.maxPositionEmbeddings, 131072);
  sparse.erase("model_type");
  sparse["architectures"] = {"LlamaForCausalLM"};
  ASSERT_EQ(errorsWith(sparse), "");
  EXPECT_EQ(config.model.architecture, "llama");
  EXPECT_EQ(config.model.slidingWindow, 0);
  EXPECT_EQ(config.model.numKeyValueHeads, 16);
}

TEST_F(HuggingFaceTest, KeysBesideItOverrideIt) {
  ASSERT_EQ(errorsWith(llama, "num_hidden_layers = 3\nrope_theta = 7.0\n"
                              "rope_scaling = { rope_type = \"none\" }\n"),
            "");
  EXPECT_EQ(config.model.numHiddenLayers, 3);
  EXPECT_EQ(config.model.ropeTheta, 7.0);
  EXPECT_EQ(config.model.hiddenSize, 64);
  EXPECT_EQ(config.model.ropeScaling.type, RopeScalingType::None);
}

TEST_F(HuggingFaceTest, OverrideNamesAnother) {
  write("other.json", [&] {
    llama["hidden_size"] = 128;
    return llama.dump();
  }());
  llama["hidden_size"] = 64;
  write("config.json", llama.dump());
  ASSERT_EQ(errorsOf(job + kTraining, {"model.config=other.json"}), "");
  EXPECT_EQ(config.model.hiddenSize, 128);
}

TEST_F(HuggingFaceTest, Mistakes) {
  EXPECT_EQ(errorsOf("[model]\nconfig = \"no.json\"\n" + kTraining),
            "no.json: error: cannot be read: No such file or directory\n");
  EXPECT_EQ(errorsOf("[model]\nconfig = \"a\\nb\"\n" + kTraining), // a path may hold anything
            "a\\nb: error: cannot be read: No such file or directory\n");
  write("config.json", "{\n  \"model_type\": llama\n}");
  EXPECT_EQ(errorsOf(job + kTraining), "config.json:2:17: error: is not valid JSON here\n");
  write("config.json", "{\"rope_theta\": 1e999}");
  EXPECT_EQ(errorsOf(job + kTraining),
            "config.json: error: has a number that is too large for any key\n");
  EXPECT_EQ(errorsWith(Json::array()), "config.json: error: is not a JSON object\n");
  EXPECT_EQ(errorsWith(Json::object()),
            "config.json: error: has neither 'model_type' nor 'architectures'\n");
  EXPECT_EQ(errorsWith({{"model_type", "gpt_neox"}}),
            "config.json: error: model 'gpt_neox' is not supported; llama, mistral, qwen2, qwen3, "
            "olmo2, gpt2, mixtral, qwen3_moe, olmoe and dots1 are\n");

  Json qwen = {{"model_type", "qwen3"}, {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_NE(errorsWith(qwen).find("config.json: error: 'layer_types' has \"sliding_attention\"; lmc "
                                  "has only \"full_attention\"\n"),
            std::string::npos);
  qwen = {{"model_type", "qwen2"}, {"use_sliding_window", true}};
  EXPECT_NE(errorsWith(qwen).find("config.json: error: 'use_sliding_window' is true; lmc has only "
                                  "false\n"),
            std::string::npos);

  Json wrong = llama;
  wrong["hidden_size"] = "big";
  wrong["hidden_act"] = "gelu";
  wrong["attention_dropout"] = 0.1;
  wrong["rope_scaling"]["mscale"] = 1.0;
  wrong["num_hidden_layers"] = 0;
  EXPECT_EQ(errorsWith(wrong),
            "config.json: error: 'hidden_act' is \"gelu\"; lmc has only \"silu\"\n"
            "config.json: error: 'attention_dropout' is 0.1; lmc has only 0.0\n"
            "config.json: error: 'mscale' in 'rope_scaling' is not supported\n"
            "config.json: error: model.hidden_size must be an integer, not \"big\"\n"
            "config.json: error: model.num_hidden_layers is 0; it must be from 1 to 4096\n");
  wrong = llama;
  wrong["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 2.0}};
  EXPECT_EQ(errorsWith(wrong),
            "config.json: error: model.rope_scaling.rope_type is \"longrope\"; it must be one of "
            "none, linear, llama3, dynamic, yarn\n");
  wrong = llama;
  wrong.erase("hidden_size");
  EXPECT_EQ(errorsWith(wrong),
            "job.toml:1:1: error: missing required key 'hidden_size' in [model]\n");
}

// The config.json of Qwen/Qwen3-30B-A3B-Base, without what concerns texts.
TEST_F(HuggingFaceTest, Qwen3Moe) {
  Json qwen = {{"architectures", {"Qwen3MoeForCausalLM"}},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"decoder_sparse_step", 1},
               {"head_dim", 128},
               {"hidden_act", "silu"},
               {"hidden_size", 2048},
               {"initializer_range", 0.02},
               {"intermediate_size", 6144},
               {"max_position_embeddings", 32768},
               {"max_window_layers", 48},
               {"mlp_only_layers", Json::array()},
               {"model_type", "qwen3_moe"},
               {"moe_intermediate_size", 768},
               {"norm_topk_prob", true},
               {"num_attention_heads", 32},
               {"num_experts", 128},
               {"num_experts_per_tok", 8},
               {"num_hidden_layers", 48},
               {"num_key_value_heads", 4},
               {"output_router_logits", false},
               {"rms_norm_eps", 1e-06},
               {"rope_scaling", nullptr},
               {"rope_theta", 1000000.0},
               {"router_aux_loss_coef", 0.001},
               {"sliding_window", nullptr},
               {"tie_word_embeddings", false},
               {"torch_dtype", "bfloat16"},
               {"use_cache", true},
               {"use_sliding_window", false},
               {"vocab_size", 151936}};
  ASSERT_EQ(errorsWith(qwen), "");
  EXPECT_EQ(test::parameterCount(config.model), 30'532'122'624u);
  EXPECT_EQ(config.model.headDim, 128);
  EXPECT_EQ(config.model.familyValue<double>("router_aux_loss_coef"), 0.001);
  EXPECT_TRUE(config.model.familyValue<bool>("norm_topk_prob"));

  // transformers 5 writes the number of experts under another name.
  qwen.erase("num_experts");
  qwen["num_local_experts"] = 64;
  qwen["mlp_only_layers"] = {0, 47};
  qwen["norm_topk_prob"] = false;
  ASSERT_EQ(errorsWith(qwen), "");
  EXPECT_EQ(config.model.familyValue<int64_t>("num_experts"), 64);
  EXPECT_EQ(config.model.familyValue<std::vector<int64_t>>("mlp_only_layers"),
            (std::vector<int64_t>{0, 47}));
  const std::string text = huggingFaceConfig(config);
  write("config.json", text);
  ASSERT_EQ(errorsOf(job + kTraining), "");
  EXPECT_EQ(huggingFaceConfig(config), text);

  for (const char *key : {"num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "norm_topk_prob", "router_aux_loss_coef", "decoder_sparse_step"})
    qwen.erase(key);
  qwen["mlp_only_layers"] = nullptr;
  ASSERT_EQ(errorsWith(qwen), "");
  EXPECT_EQ(config.model.familyValue<int64_t>("num_experts"), 128);
  EXPECT_EQ(config.model.familyValue<int64_t>("num_experts_per_tok"), 8);
  EXPECT_EQ(config.model.familyValue<int64_t>("moe_intermediate_size"), 768);
  EXPECT_FALSE(config.model.familyValue<bool>("norm_topk_prob"));

  qwen["mlp_only_layers"] = {0, "1"};
  EXPECT_EQ(errorsWith(qwen),
            "config.json: error: model.mlp_only_layers must be a list of integers, "
            "not a list\n");
  qwen["mlp_only_layers"] = nullptr;
  qwen["num_experts"] = 4;
  EXPECT_EQ(errorsWith(qwen),
            "config.json: error: num_experts_per_tok = 8 is more than num_experts "
            "= 4\n");
}

// The config.json of allenai/OLMoE-1B-7B-0924, without what concerns texts.
TEST_F(HuggingFaceTest, Olmoe) {
  Json olmoe = {{"architectures", {"OlmoeForCausalLM"}},
                {"attention_bias", false},
                {"attention_dropout", 0.0},
                {"clip_qkv", nullptr},
                {"hidden_act", "silu"},
                {"hidden_size", 2048},
                {"initializer_range", 0.02},
                {"intermediate_size", 1024},
                {"max_position_embeddings", 4096},
                {"model_type", "olmoe"},
                {"norm_topk_prob", false},
                {"num_attention_heads", 16},
                {"num_experts", 64},
                {"num_experts_per_tok", 8},
                {"num_hidden_layers", 16},
                {"num_key_value_heads", 16},
                {"output_router_logits", false},
                {"rms_norm_eps", 1e-05},
                {"rope_scaling", nullptr},
                {"rope_theta", 10000.0},
                {"router_aux_loss_coef", 0.01},
                {"tie_word_embeddings", false},
                {"torch_dtype", "bfloat16"},
                {"use_cache", true},
                {"vocab_size", 50304}};
  ASSERT_EQ(errorsWith(olmoe), "");
  EXPECT_EQ(test::parameterCount(config.model), 6'919'161'856u);
  const std::string text = huggingFaceConfig(config);
  write("config.json", text);
  ASSERT_EQ(errorsOf(job + kTraining), "");
  EXPECT_EQ(huggingFaceConfig(config), text);

  for (const char *key : {"num_experts", "num_experts_per_tok", "norm_topk_prob",
                          "router_aux_loss_coef", "num_key_value_heads"})
    olmoe.erase(key);
  ASSERT_EQ(errorsWith(olmoe), "");
  EXPECT_EQ(config.model.numKeyValueHeads, 16);
  EXPECT_EQ(config.model.familyValue<int64_t>("num_experts"), 64);
  EXPECT_EQ(config.model.familyValue<int64_t>("num_experts_per_tok"), 8);
  EXPECT_EQ(config.model.familyValue<double>("router_aux_loss_coef"), 0.01);
  EXPECT_FALSE(config.model.familyValue<bool>("norm_topk_prob"));

  olmoe["clip_qkv"] = 8.0;
  EXPECT_EQ(errorsWith(olmoe), "config.json: error: 'clip_qkv' is 8.0; lmc has only null\n");
  olmoe["clip_qkv"] = nullptr;
  EXPECT_EQ(
      errorsWith(olmoe, "head_dim = 64\n"),
      "job.toml:3:12: error: head_dim = 64 times num_attention_heads = 16 is not hidden_size = "
      "2048, as Hugging Face's OlmoeForCausalLM needs it; leave it out\n");
}

// A router that adds noise in training is not what lmc computes.
TEST_F(HuggingFaceTest, MixtralWithNoise) {
  Json mixtral = llama;
  mixtral["architectures"] = {"MixtralForCausalLM"};
  mixtral["model_type"] = "mixtral";
  mixtral.erase("rope_scaling");
  mixtral["router_jitter_noise"] = 0.0;
  ASSERT_EQ(errorsWith(mixtral), "");
  mixtral["router_jitter_noise"] = 0.1;
  EXPECT_EQ(errorsWith(mixtral),
            "config.json: error: 'router_jitter_noise' is 0.1; lmc has only 0.0\n");
}

// What is written reads back as the same model, and again as the same text.
TEST_F(HuggingFaceTest, ExportReadsBack) {
  const std::string models[] = {
      "",
      "tie_word_embeddings = true\nattention_bias = true\nmlp_bias = true\nhead_dim = 32\n",
      "architecture = \"mistral\"\nsliding_window = 8\n",
      "sliding_window = 8\n",
      "head_dim = 10\nnum_key_value_heads = 2\n",
      "rope_scaling = { rope_type = \"linear\", factor = 2.5 }\n",
      "rope_scaling = { rope_type = \"dynamic\", factor = 2 }\n",
      "rope_scaling = { rope_type = \"llama3\", factor = 8, low_freq_factor = 1.5 }\n",
      "rope_scaling = { rope_type = \"yarn\", factor = 4, attention_factor = 1.25 }\n",
      "architecture = \"mixtral\"\nnum_local_experts = 3\n",
      "architecture = \"qwen3_moe\"\nmoe_intermediate_size = 32\nmlp_only_layers = [1]\n",
      "architecture = \"olmoe\"\nattention_bias = true\nnorm_topk_prob = true\n",
  };
  for (const std::string &more : models) {
    ASSERT_EQ(errorsOf(kModel + more + "max_position_embeddings = 64\n" + kTraining), "") << more;
    const Config first = config;
    const std::string text = huggingFaceConfig(first);
    write("config.json", text);
    ASSERT_EQ(errorsOf(job + kTraining), "") << text;
    EXPECT_EQ(huggingFaceConfig(config), text);
    EXPECT_EQ(test::parameterCount(config.model), test::parameterCount(first.model)) << more;
    EXPECT_EQ(config.model.slidingWindow, first.model.slidingWindow);
    EXPECT_EQ(config.model.headDim, first.model.headDim);
    EXPECT_EQ(config.model.ropeScaling.type, first.model.ropeScaling.type);
    EXPECT_EQ(config.model.ropeScaling.factor, first.model.ropeScaling.factor);
    EXPECT_EQ(config.model.ropeScaling.lowFreqFactor, first.model.ropeScaling.lowFreqFactor);
    EXPECT_EQ(config.model.ropeScaling.attentionFactor, first.model.ropeScaling.attentionFactor);
  }
}

TEST_F(HuggingFaceTest, ExportNamesTheClassThatComputesTheModel) {
  auto modelType = [&](const std::string &more) -> std::string {
    EXPECT_EQ(errorsOf(kModel + more + kTraining), "");
    const Json json = Json::parse(huggingFaceConfig(config));
    EXPECT_EQ(json["architectures"][0],
              json["model_type"] == "llama" ? "LlamaForCausalLM" : "MistralForCausalLM");
    return json["model_type"];
  };
  EXPECT_EQ(modelType(""), "llama");
  EXPECT_EQ(modelType("attention_bias = true\n"), "llama");
  EXPECT_EQ(modelType("architecture = \"mistral\"\n"), "mistral");
  EXPECT_EQ(modelType("sliding_window = 4\n"), "mistral"); // transformers' Llama ignores it
}

} // namespace
} // namespace lmc
