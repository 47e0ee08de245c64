// Mistral: Llama with a sliding window, without biases, and with heads that need not divide
// hidden_size. Jiang et al. 2023, https://arxiv.org/abs/2310.06825.
#include "models/families/Mistral.h"

#include "compiler/config/Checks.h"
#include "models/families/Decoder.h"

using namespace lmc;

static const ModelFamily *exportedAs(const ModelConfig &model) {
  return model.attentionBias || model.mlpBias ? nullptr : &mistral();
}

void lmc::refuseBiases(const config::CheckedJob &job, const char *reason) {
  if (!job.sound({"model.attention_bias", "model.mlp_bias"}) || exportedAs(job.config.model))
    return;
  const char *bias = job.config.model.attentionBias ? "attention_bias" : "mlp_bias";
  job.error(
      std::string("model.") + bias,
      "{} does not go with {}: checkpoints could not be exported, as Hugging Face's Llama has "
      "biases and its Mistral the rest",
      bias, reason);
}

static void check(const config::CheckedJob &job) { refuseBiases(job, "architecture \"mistral\""); }

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["sliding_window"] = model.slidingWindow ? config::Json(model.slidingWindow) : nullptr;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.window = model.slidingWindow;
  return {.kinds = {layer}, .pattern = {}};
}

const ModelFamily &lmc::mistral() {
  static const ModelFamily family = {
      .name = "mistral",
      .modelType = "mistral",
      .className = "MistralForCausalLM",
      .ignored = {"attention_bias", "mlp_bias"},
      .defaults = {{"rms_norm_eps", 1e-6},
                   {"max_position_embeddings", 131072},
                   {"num_key_value_heads", 8},
                   {"sliding_window", 4096}},
      .check = check,
      .exportedAs = exportedAs,
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}
