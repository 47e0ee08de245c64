// The OLMoE family: Llama with a mixture of experts as its MLP, and an RMSNorm over whole rows of q
// and k. Muennighoff et al. 2024, https://arxiv.org/abs/2409.02060.
#include "models/families/SparseMlp.h"

namespace lmc {

static constexpr const char *kExperts = "num_experts";

static void check(const config::CheckedJob &job) {
  checkExperts(job, kExperts);
  const ModelConfig &model = job.config.model;
  if (!job.sound({"model.hidden_size", "model.num_attention_heads", "model.head_dim"}) ||
      !job.provenance.given("model.head_dim"))
    return;
  if (model.headDim * model.numAttentionHeads != model.hiddenSize)
    job.error("model.head_dim",
              "head_dim = {} times num_attention_heads = {} is not hidden_size = {}, as Hugging "
              "Face's OlmoeForCausalLM needs it; leave it out",
              model.headDim, model.numAttentionHeads, model.hiddenSize);
}

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
  json["clip_qkv"] = nullptr;
  writeBalanceLoss(model, json);
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.setAttentionBias(model.attentionBias);
  layer.headNorm = HeadNorm::WholeRow;
  layer.experts = expertsOf(model, kExperts, model.intermediateSize);
  return {.kinds = {layer}, .pattern = {}, .balanceLoss = model.familyValue<double>(kBalanceLoss)};
}

const ModelFamily &olmoe() {
  static const ModelFamily family = {
      .name = "olmoe",
      .modelType = "olmoe",
      .className = "OlmoeForCausalLM",
      .keys = {expertsKey(kExperts, 64), chosenKey(8), normalizeKey(), balanceLossKey(0.01)},
      .ignored = {"mlp_bias", "sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-5}, {"max_position_embeddings", 4096}},
      .onlyValues = {{"hidden_act", "silu"},
                     {"attention_dropout", 0.0},
                     {"partial_rotary_factor", 1.0},
                     {"clip_qkv", nullptr}},
      .mayPadMlp = false,
      .check = check,
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
