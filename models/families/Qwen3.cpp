// The Qwen 3 family: Llama with an RMSNorm over each head of q and k. head_dim is a key of its own.
// Yang et al. 2025, https://arxiv.org/abs/2505.09388.
#include "ground/config/ModelFamily.h"
#include "models/families/Decoder.h"

namespace lmc {

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = model.numHiddenLayers;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.setAttentionBias(model.attentionBias);
  layer.headNorm = HeadNorm::PerHead;
  return {.kinds = {layer}, .pattern = {}};
}

const ModelFamily &qwen3() {
  static const ModelFamily family = {
      .name = "qwen3",
      .modelType = "qwen3",
      .className = "Qwen3ForCausalLM",
      .ignored = {"mlp_bias", "sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-6},
                   {"max_position_embeddings", 32768},
                   {"num_key_value_heads", 32},
                   {"head_dim", 128}},
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
