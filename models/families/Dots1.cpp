// The dots.llm1 family: Qwen 3 with DeepSeek-V3's mixture of experts. The router's scores are
// sigmoids, a bias keeps experts equally busy without a loss, and a shared expert processes all
// tokens. Huo et al. 2025, https://arxiv.org/abs/2506.05767; DeepSeek-AI 2024,
// https://arxiv.org/abs/2412.19437.
#include "models/families/SparseMlp.h"

#include <algorithm>

namespace lmc {

using namespace config::keys;

static constexpr const char *kExperts = "n_routed_experts", *kShared = "n_shared_experts",
                            *kDense = "first_k_dense_replace", *kScale = "routed_scaling_factor";

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
  json["sliding_window"] = nullptr;
  json["n_group"] = 1;
  json["topk_group"] = 1;
  json["output_router_logits"] = false;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer dense;
  dense.setAttentionBias(model.attentionBias);
  dense.headNorm = HeadNorm::PerHead;
  DecoderLayer sparse = dense;
  dense.name = "dense_layer";
  Experts &experts = sparse.experts;
  experts = expertsOf(model, kExperts, model.familyValue<int64_t>(kExpertWidth));
  experts.sigmoid = true;
  experts.scale = model.familyValue<double>(kScale);
  experts.bias = "mlp.gate.e_score_correction_bias";
  experts.sharedSize = model.familyValue<int64_t>(kShared) * experts.intermediateSize;
  experts.shared = "mlp.shared_experts";
  const int64_t layers = model.numHiddenLayers;
  const int64_t first = std::min(model.familyValue<int64_t>(kDense), layers);
  if (first == 0)
    return {.kinds = {sparse}, .pattern = {}};
  if (first == layers)
    return {.kinds = {dense}, .pattern = {}};
  std::vector<size_t> pattern(size_t(layers), 1);
  std::fill_n(pattern.begin(), first, 0);
  return {.kinds = {dense, sparse}, .pattern = pattern};
}

const ModelFamily &dots1() {
  static const ModelFamily family = {
      .name = "dots1",
      .modelType = "dots1",
      .className = "Dots1ForCausalLM",
      .keys =
          {expertsKey(kExperts, 128), chosenKey(6), expertWidthKey(), normalizeKey(),
           familyKey(kShared, int64_t(1), range(1, 1024),
                     "Width of the expert that all tokens have, in widths of an expert."),
           familyKey(
               kDense, int64_t(0), range(0, 1 << 20),
               "So many of the first layers have an MLP of `intermediate_size`, and no experts."),
           familyKey(kScale, 1.0, range(0, 1e6), "Factor of the weights of a token's experts.")},
      .ignored = {"mlp_bias", "sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-6},
                   {"max_position_embeddings", 2048},
                   {"num_key_value_heads", 32}},
      .onlyValues = {{"hidden_act", "silu"},
                     {"attention_dropout", 0.0},
                     {"partial_rotary_factor", 1.0},
                     {"n_group", 1},
                     {"topk_group", 1}},
      .mayPadMlp = false,
      .check = [](const config::CheckedJob &job) { checkExperts(job, kExperts); },
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
