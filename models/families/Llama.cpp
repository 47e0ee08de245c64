// Llama: RMSNorm, RoPE, grouped-query attention, SwiGLU.
// Touvron et al. 2023, https://arxiv.org/abs/2302.13971.
#include "compiler/config/Checks.h"
#include "models/families/Decoder.h"
#include "models/families/Mistral.h"

namespace lmc {

// What transformers' Llama does not have, and its Mistral has; null where there is nothing.
static const char *beyondLlama(const ModelConfig &model) {
  return model.slidingWindow                               ? "a sliding_window"
         : model.hiddenSize % model.numAttentionHeads != 0 ? "heads that do not divide hidden_size"
                                                           : nullptr;
}

static const ModelFamily *exportedAs(const ModelConfig &model) {
  return beyondLlama(model) ? mistral().exportedAs(model) : model.family;
}

static void check(const config::CheckedJob &job) {
  if (!job.sound({"model.hidden_size", "model.num_attention_heads", "model.sliding_window"}))
    return;
  if (const char *reason = beyondLlama(job.config.model))
    refuseBiases(job, reason);
}

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
  json["mlp_bias"] = model.mlpBias;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  for (Projection *projection : {&layer.q, &layer.k, &layer.v, &layer.o})
    projection->bias = model.attentionBias;
  for (Projection *projection : {&layer.gate, &layer.up, &layer.down})
    projection->bias = model.mlpBias;
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
      .check = check,
      .exportedAs = exportedAs,
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
