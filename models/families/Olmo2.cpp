// The OLMo 2 family: Llama with its norms after attention and MLP, and an RMSNorm over whole rows
// of q and k. OLMo et al. 2025, https://arxiv.org/abs/2501.00656.
#include "ground/config/ModelFamily.h"
#include "models/families/Decoder.h"

namespace lmc {

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.setAttentionBias(model.attentionBias);
  layer.attention = {.before = "", .behind = "post_attention_layernorm"};
  layer.mlp = {.before = "", .behind = "post_feedforward_layernorm"};
  layer.headNorm = HeadNorm::WholeRow;
  return {.kinds = {layer}, .pattern = {}};
}

const ModelFamily &olmo2() {
  static const ModelFamily family = {
      .name = "olmo2",
      .modelType = "olmo2",
      .className = "Olmo2ForCausalLM",
      .ignored = {"mlp_bias", "sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-5}, {"max_position_embeddings", 2048}},
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
