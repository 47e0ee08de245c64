// The Qwen 3 family with a mixture of experts: Qwen 3 with experts as the MLP of all or some
// layers. Yang et al. 2025, https://arxiv.org/abs/2505.09388.
#include "models/families/SparseMlp.h"

#include <algorithm>

namespace lmc {

using namespace config::keys;

static constexpr const char *kExperts = "num_experts", *kStep = "decoder_sparse_step",
                            *kDenseLayers = "mlp_only_layers";

static void check(const config::CheckedJob &job) {
  checkExperts(job, kExperts);
  const std::string path = std::string("model.") + kDenseLayers;
  if (!job.sound({path.c_str(), "model.num_hidden_layers"}))
    return;
  const ModelConfig &model = job.config.model;
  for (int64_t layer : model.familyValue<std::vector<int64_t>>(kDenseLayers))
    if (layer >= model.numHiddenLayers)
      return job.error(path, "{} has {}; the model has layers 0 to {}", kDenseLayers, layer,
                       model.numHiddenLayers - 1);
}

static void writeConfig(const ModelConfig &model, config::Json &json) {
  json["attention_bias"] = model.attentionBias;
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = model.numHiddenLayers;
  writeBalanceLoss(model, json);
}

// Returns true if the layer has experts. Source: Hugging Face's Qwen3MoeDecoderLayer.
static bool isSparse(const ModelConfig &model, int64_t layer) {
  const auto &dense = model.familyValue<std::vector<int64_t>>(kDenseLayers);
  return std::ranges::find(dense, layer) == dense.end() &&
         (layer + 1) % model.familyValue<int64_t>(kStep) == 0;
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer dense;
  dense.setAttentionBias(model.attentionBias);
  dense.headNorm = HeadNorm::PerHead;
  DecoderLayer sparse = dense;
  dense.name = "dense_layer";
  sparse.experts = expertsOf(model, kExperts, model.familyValue<int64_t>(kExpertWidth));

  int64_t sparseLayers = 0;
  std::vector<size_t> pattern;
  for (int64_t layer = 0; layer < model.numHiddenLayers; ++layer) {
    sparseLayers += isSparse(model, layer);
    pattern.push_back(isSparse(model, layer) ? 0 : 1);
  }
  Decoder decoder{.kinds = {sparse, dense}, .pattern = pattern};
  if (sparseLayers == model.numHiddenLayers || sparseLayers == 0) {
    decoder.kinds = {sparseLayers ? sparse : dense};
    decoder.pattern.clear();
  }
  decoder.balanceLoss = model.familyValue<double>(kBalanceLoss);
  return decoder;
}

const ModelFamily &qwen3Moe() {
  static const ModelFamily family = {
      .name = "qwen3_moe",
      .modelType = "qwen3_moe",
      .className = "Qwen3MoeForCausalLM",
      .keys = {expertsKey(kExperts, 128), chosenKey(8), expertWidthKey(), normalizeKey(),
               balanceLossKey(0.001),
               familyKey(
                   kStep, int64_t(1), range(1, 4096),
                   "A layer has experts if its number, counted from 1, is a multiple of this; "
                   "the others have an MLP."),
               familyKey(kDenseLayers, std::vector<int64_t>(), range(0, 4095), defaultText("none"),
                         "Layers, counted from 0, that have an MLP and no experts, whatever "
                         "`decoder_sparse_step` says.")},
      .ignored = {"mlp_bias", "sliding_window"},
      .defaults = {{"rms_norm_eps", 1e-6},
                   {"max_position_embeddings", 32768},
                   {"num_key_value_heads", 4},
                   {kExpertWidth, 768}},
      .otherNames = {{"num_local_experts", kExperts}},
      .mayPadMlp = false,
      .check = check,
      .writeConfig = writeConfig,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
