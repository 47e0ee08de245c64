// The GPT-2 family: LayerNorm with bias, learned positions, an MLP with GELU, biases everywhere, and
// weights [in, out] (Conv1D). Radford et al. 2019,
// https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf.
#include "ground/config/Checks.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/keys/Traits.h"
#include "models/families/Decoder.h"

namespace lmc {

using namespace config::keys;

static constexpr const char *kEps = "layer_norm_epsilon";

static config::Json modelKeys(const ModelConfig &model) {
  return {
      {"n_embd", model.hiddenSize},
      {"n_inner", model.intermediateSize},
      {"n_layer", model.numHiddenLayers},
      {"n_head", model.numAttentionHeads},
      {"n_positions", model.maxPositionEmbeddings},
      {"activation_function", "gelu_new"},
      {"resid_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"attn_pdrop", 0.0},
      {"scale_attn_weights", true},
      {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},
  };
}

static void check(const config::CheckedJob &job) {
  // By default, the number of positions is the sequence length. But phases may change that length.
  if (job.sound({"model.max_position_embeddings"}) && job.config.phases.size() > 1 &&
      !job.provenance.given("model.max_position_embeddings"))
    job.error("model.max_position_embeddings",
              "gpt2 learns a vector for each of max_position_embeddings (n_positions) positions, "
              "and a job with phases must give their number");
}

static Decoder decoder(const ModelConfig &model) {
  DecoderLayer layer;
  layer.attention = {.before = "ln_1", .behind = ""};
  layer.mlp = {.before = "ln_2", .behind = ""};
  layer.qkv = {"attn.c_attn", true};
  layer.o = {"attn.c_proj", true};
  layer.gate = {""};
  layer.up = {"mlp.c_fc", true};
  layer.down = {"mlp.c_proj", true};
  return {.kinds = {layer},
          .pattern = {},
          .norm = NormKind::Layer,
          .normEps = model.familyValue<double>(kEps),
          .positions = Positions::Learned,
          .transposedWeights = true,
          .embedding = "transformer.wte.weight",
          .positionTable = "transformer.wpe.weight",
          .lastNorm = "transformer.ln_f",
          .layers = "transformer.h"};
}

const ModelFamily &gpt2() {
  static const ModelFamily family = {
      .name = "gpt2",
      .modelType = "gpt2",
      .className = "GPT2LMHeadModel",
      .keys = {familyKey(kEps, 1e-5, range(1e-15, 0.1),
                                       "Added to the variance in LayerNorm.")},
      .absent = {"num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps", "attention_bias",
                 "mlp_bias", "sliding_window", "rope_scaling"},
      .defaults = {{"n_positions", 1024},
                   {"n_embd", 768},
                   {"n_layer", 12},
                   {"n_head", 12},
                   {"vocab_size", 50257},
                   {"tie_word_embeddings", true},
                   {"resid_pdrop", 0.1},
                   {"embd_pdrop", 0.1},
                   {"attn_pdrop", 0.1}},
      .onlyValues = {{"activation_function", "gelu_new"},
                     {"scale_attn_weights", true},
                     {"scale_attn_by_inverse_layer_idx", false},
                     {"add_cross_attention", false}},
      .dropouts = {"resid_pdrop", "embd_pdrop", "attn_pdrop"},
      .intermediateRatio = 4,
      .mayPadMlp = false,
      .check = check,
      .modelKeys = modelKeys,
      .decoder = decoder,
  };
  return family;
}

} // namespace lmc
