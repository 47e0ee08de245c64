// The Qwen 2 and 2.5 family: Llama with biases only on q, k and v.
// Yang et al. 2024, https://arxiv.org/abs/2407.10671.
#include "ground/config/ModelFamily.h"
#include "models/families/Decoder.h"

namespace lmc {

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = model.numHiddenLayers;
}

static Decoder decoder(const ModelConfig &) {
  DecoderLayer layer;
  layer.q.bias = layer.k.bias = layer.v.bias = true;
  return {.kinds = {layer}, .pattern = {}};
}

const ModelFamily &qwen2() {
  static const ModelFamily family = {
      .name = "qwen2",
      .modelType = "qwen2",
      .className = "Qwen2ForCausalLM",
      .ignored = {"attention_bias", "mlp_bias", "sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-6},
                   {"max_position_embeddings", 32768},
                   {"num_key_value_heads", 32}},
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
