// The keys of [model].
#include "ground/config/keys/Rows.h"

#include "ground/config/ModelFamily.h"

#include <fmt/format.h>

namespace lmc::config::keys {

static constexpr double kMaxWidth = 1 << 20, kMaxHeads = 4096;

void Rows::model(const ModelFamilies &families) {
  std::vector<const char *> names;
  std::vector<std::string> modelTypes;
  for (const ModelFamily *family : families) {
    names.push_back(family->name);
    modelTypes.push_back(family->modelType);
  }
  // A job without `architecture` gets the first family.
  const auto architecture = [families](Config &config) -> Field {
    if (config.model.architecture.empty())
      config.model.architecture = families.front()->name;
    return &config.model.architecture;
  };
  section("model", "The model, in the names of Hugging Face's `config.json`.", identity);
  KEY(model.config, optional, sameModel,
      fmt::format("A Hugging Face `config.json` ({}), relative to the TOML file. Keys "
                  "of this section override its values.",
                  listed(modelTypes, "or")));
  key("architecture", architecture, choices(names),
      "Family of the model; names the class of exported checkpoints.");
  KEY(model.vocabSize, range(1, kMaxInt32, "tokens"), required,
      "Rows of the embedding and of the head. Token ids are below it.");
  KEY(model.hiddenSize, alias("n_embd"), range(1, kMaxWidth), required,
      "Width of the residual stream. GPT-2's `n_embd` is accepted too.");
  KEY(model.intermediateSize, alias("n_inner"), range(1, 16 * kMaxWidth), required,
      "Width inside the MLP. GPT-2's `n_inner` is accepted too; in `gpt2` the default is 4 x "
      "`hidden_size`.");
  KEY(model.numHiddenLayers, alias("n_layer"), range(1, kMaxLayers, "layers"), required,
      "Transformer layers. GPT-2's `n_layer` is accepted too.");
  KEY(model.numAttentionHeads, alias("n_head"), range(1, kMaxHeads, "heads"), required,
      "Query heads. They divide `hidden_size` unless `head_dim` is given. GPT-2's `n_head` is "
      "accepted too.");
  KEY(model.numKeyValueHeads, range(1, kMaxHeads, "heads"), derived("model.num_attention_heads"),
      "Key and value heads (GQA). They divide `num_attention_heads`.");
  KEY(model.headDim, range(2, 4096), defaultText("hidden_size / num_attention_heads"),
      "Width of one head; even, because RoPE turns pairs.");
  KEY(model.maxPositionEmbeddings, alias("n_positions"), tokens(1),
      derived("training.sequence_length"),
      "Longest context that the model is meant for; at least `sequence_length`. In `gpt2` it is "
      "the number of learned positions; GPT-2's `n_positions` is accepted too.");
  KEY(model.ropeTheta, range(1, 1e15), "Base of the RoPE frequencies.");
  KEY(model.rmsNormEps, range(1e-15, 0.1), "Added to the mean square in RMSNorm.");
  KEY(model.tieWordEmbeddings, "The head uses the embedding's weights.");
  KEY(model.attentionBias,
      "Biases on the q, k, v and o projections. In `mistral` and `qwen2` it must be false.");
  KEY(model.mlpBias,
      "Biases on the gate, up and down projections. In all but `llama` it must be false.");
  KEY(model.embeddingNorm,
      "A norm of the model's kind behind the embedding, like the LayerNorm in the StableEmbedding "
      "of bitsandbytes: an RMSNorm with the weights `model.embed_norm.weight` or, in `gpt2`, a "
      "LayerNorm of the sum of the embedding and the position's vector, with "
      "`transformer.embed_norm.weight` and `.bias`. Hugging Face's classes do not have it, so "
      "checkpoints cannot be exported.");
  KEY(model.slidingWindow, tokens(0),
      "A token sees itself and the `sliding_window` - 1 tokens before it; 0: all.");
  KEY(model.initializerRange, range(1e-9, 1),
      "Standard deviation of the initial embedding, and of all linear weights with `initializer = "
      "\"normal\"`.");
  KEY(model.initializer, choices({"fan_in", "normal"}),
      "Standard deviation of initial linear weights: `fan_in` is 1 / sqrt(fan_in), for down_proj 1 "
      "/ sqrt(hidden_size), `normal` is `initializer_range`. Both divide it by sqrt(2 x layers) "
      "for the o and down projections.");

  section("model.rope_scaling",
          "Longer contexts through RoPE, in Hugging Face's names; as a section or as an inline "
          "table in `[model]`.",
          identity);
  using enum RopeScalingType;
  key("rope_type", FIELD(model.ropeScaling.type), alias("type"), choice("none", None),
      choice("default", None), choice("linear", Linear), choice("llama3", Llama3),
      choice("dynamic", Dynamic), choice("yarn", Yarn),
      "How the RoPE frequencies are stretched. `default` is another name for `none`.");
  KEY(model.ropeScaling.factor, range(1, 1e6),
      "The new context length divided by the original one.");
  KEY(model.ropeScaling.lowFreqFactor, range(1e-6, 1e6),
      "llama3: wavelengths above `original_max_position_embeddings` / `low_freq_factor` are "
      "stretched by `factor`.");
  KEY(model.ropeScaling.highFreqFactor, range(1e-6, 1e6),
      "llama3: wavelengths below `original_max_position_embeddings` / `high_freq_factor` stay; "
      "more than `low_freq_factor`.");
  KEY(model.ropeScaling.originalMaxPositionEmbeddings, tokens(1),
      derived("model.max_position_embeddings"), "Context before stretching.");
  KEY(model.ropeScaling.attentionFactor, range(0, 1e3),
      "yarn: scale of cos and sin; 0: the paper's 0.1 ln(factor) + 1.");
  KEY(model.ropeScaling.betaFast, range(1e-6, 1e6),
      "yarn: dimensions that make more than `beta_fast` turns over the original context stay.");
  KEY(model.ropeScaling.betaSlow, range(1e-6, 1e6),
      "yarn: dimensions that make fewer than `beta_slow` turns over the original context are "
      "stretched by `factor`; less than `beta_fast`.");
}

} // namespace lmc::config::keys
