// The Mistral family: Llama with a sliding window and without biases. The number of heads need not
// divide hidden_size. Jiang et al. 2023, https://arxiv.org/abs/2310.06825.
#include "ground/config/ModelFamily.h"
#include "models/families/Decoder.h"

namespace lmc {

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["sliding_window"] = model.slidingWindow ? config::Json(model.slidingWindow) : nullptr;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.window = model.slidingWindow;
  return {.kinds = {layer}, .pattern = {}};
}

const ModelFamily &mistral() {
  static const ModelFamily family = {
      .name = "mistral",
      .modelType = "mistral",
      .className = "MistralForCausalLM",
      .ignored = {"attention_bias", "mlp_bias"},
      .defaults = {{"rms_norm_eps", 1e-6},
                   {"max_position_embeddings", 131072},
                   {"num_key_value_heads", 8},
                   {"sliding_window", 4096}},
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
