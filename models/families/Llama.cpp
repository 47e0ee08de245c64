// The Llama family: RMSNorm, RoPE, grouped-query attention, SwiGLU.
// Touvron et al. 2023, https://arxiv.org/abs/2302.13971.
#include "ground/config/ModelFamily.h"
#include "models/families/Decoder.h"

namespace lmc {

const ModelFamily &mistral();

static std::optional<Export> exportElsewhere(const ModelConfig &model) {
  if (model.slidingWindow)
    return Export{&mistral(), "a sliding_window"};
  if (model.hiddenSize % model.numAttentionHeads != 0)
    return Export{&mistral(), "heads that do not divide hidden_size"};
  return std::nullopt;
}

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
  json["mlp_bias"] = model.mlpBias;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.setAttentionBias(model.attentionBias);
  layer.gate.bias = layer.up.bias = layer.down.bias = model.mlpBias;
  layer.window = model.slidingWindow;
  return {.kinds = {layer}, .pattern = {}};
}

const ModelFamily &llama() {
  static const ModelFamily family = {
      .name = "llama",
      .modelType = "llama",
      .className = "LlamaForCausalLM",
      .ignored = {"sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-6}, {"max_position_embeddings", 2048}},
      .exportElsewhere = exportElsewhere,
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
