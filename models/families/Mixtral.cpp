// The Mixtral family: Mistral with an MLP of experts. A router chooses two experts for each token.
// Jiang et al. 2024, https://arxiv.org/abs/2401.04088.
#include "models/families/SparseMlp.h"

namespace lmc {

static constexpr const char *kExperts = "num_local_experts";

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["sliding_window"] = model.slidingWindow ? config::Json(model.slidingWindow) : nullptr;
  json["router_jitter_noise"] = 0.0;
  writeBalanceLoss(model, json);
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.window = model.slidingWindow;
  layer.experts = {.count = model.familyValue<int64_t>(kExperts),
                   .chosen = model.familyValue<int64_t>(kChosen),
                   .intermediateSize = model.intermediateSize,
                   .normalize = true,
                   .router = "block_sparse_moe.gate",
                   .experts = "block_sparse_moe.experts",
                   .gate = "w1",
                   .up = "w3",
                   .down = "w2"};
  return {.kinds = {layer}, .pattern = {}, .balanceLoss = model.familyValue<double>(kBalanceLoss)};
}

const ModelFamily &mixtral() {
  static const ModelFamily family = {
      .name = "mixtral",
      .modelType = "mixtral",
      .className = "MixtralForCausalLM",
      .keys = {expertsKey(kExperts, 8), chosenKey(2), balanceLossKey(0.001)},
      .ignored = {"attention_bias", "mlp_bias"},
      .defaults = {{"rms_norm_eps", 1e-5},
                   {"rope_theta", 1e6},
                   {"max_position_embeddings", 131072},
                   {"num_key_value_heads", 8}},
      .onlyValues = {{"hidden_act", "silu"},
                     {"attention_dropout", 0.0},
                     {"partial_rotary_factor", 1.0},
                     {"router_jitter_noise", 0.0}},
      .mayPadMlp = false,
      .check = [](const config::CheckedJob &job) { checkExperts(job, kExperts); },
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
