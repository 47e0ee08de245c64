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
  // The default is the first family.
  const auto architecture = [families](Config &config) -> Field {
    if (config.model.architecture.empty())
      config.model.architecture = families.front()->name;
    return &config.model.architecture;
  };
  section("model", "The model, in the names of Hugging Face's `config.json`.");
  key("config", FIELD(model.config), defaultText("none"),
      fmt::format("A Hugging Face `config.json` ({}), relative to the TOML file. Keys "
                  "of this section override its values.",
                  listed(modelTypes, "or")));
  key("architecture", architecture, choices(names), identity,
      "Family of the model; names the class of exported checkpoints.");
  key("vocab_size", FIELD(model.vocabSize), range(1, kMaxInt32, "tokens"), required, identity,
      "Rows of the embedding and of the head. Token ids are below it.");
  key("hidden_size", FIELD(model.hiddenSize), alias("n_embd"), range(1, kMaxWidth), required,
      identity, "Width of the residual stream. GPT-2's `n_embd` is accepted too.");
  key("intermediate_size", FIELD(model.intermediateSize), alias("n_inner"),
      range(1, 16 * kMaxWidth), required, identity,
      "Width inside the MLP. GPT-2's `n_inner` is accepted too; in `gpt2` the default is 4 x "
      "`hidden_size`.");
  key("num_hidden_layers", FIELD(model.numHiddenLayers), alias("n_layer"),
      range(1, kMaxLayers, "layers"), required, identity,
      "Transformer layers. GPT-2's `n_layer` is accepted too.");
  key("num_attention_heads", FIELD(model.numAttentionHeads), alias("n_head"),
      range(1, kMaxHeads, "heads"), required, identity,
      "Query heads. They divide `hidden_size` unless `head_dim` is given. GPT-2's `n_head` is "
      "accepted too.");
  key("num_key_value_heads", FIELD(model.numKeyValueHeads), range(1, kMaxHeads, "heads"),
      derived("model.num_attention_heads"), identity,
      "Key and value heads (GQA). They divide `num_attention_heads`.");
  key("head_dim", FIELD(model.headDim), range(2, 4096),
      defaultText("hidden_size / num_attention_heads"), identity,
      "Width of one head; even, because RoPE turns pairs.");
  key("max_position_embeddings", FIELD(model.maxPositionEmbeddings), alias("n_positions"),
      range(1, kMaxPositions, "tokens"), derived("training.sequence_length"), identity,
      "Longest context that the model is meant for; at least `sequence_length`. In `gpt2` it is "
      "the number of learned positions; GPT-2's `n_positions` is accepted too.");
  key("rope_theta", FIELD(model.ropeTheta), range(1, 1e15), identity,
      "Base of the RoPE frequencies.");
  key("rms_norm_eps", FIELD(model.rmsNormEps), range(1e-15, 0.1), identity,
      "Added to the mean square in RMSNorm.");
  key("tie_word_embeddings", FIELD(model.tieWordEmbeddings), identity,
      "The head uses the embedding's weights.");
  key("attention_bias", FIELD(model.attentionBias), identity,
      "Biases on the q, k, v and o projections. In `mistral` and `qwen2` it must be false.");
  key("mlp_bias", FIELD(model.mlpBias), identity,
      "Biases on the gate, up and down projections. In all but `llama` it must be false.");
  key("embedding_norm", FIELD(model.embeddingNorm), identity,
      "A norm of the model's kind behind the embedding, like the LayerNorm in the StableEmbedding "
      "of bitsandbytes: an RMSNorm with the weights `model.embed_norm.weight` or, in `gpt2`, a "
      "LayerNorm of the sum of the embedding and the position's vector, with "
      "`transformer.embed_norm.weight` and `.bias`. Hugging Face's classes do not have it, so "
      "checkpoints cannot be exported.");
  key("sliding_window", FIELD(model.slidingWindow), range(0, kMaxPositions, "tokens"), identity,
      "A token sees itself and the `sliding_window` - 1 tokens before it; 0: all.");
  key("initializer_range", FIELD(model.initializerRange), range(1e-9, 1), identity,
      "Standard deviation of the initial embedding, and of all linear weights with `initializer = "
      "\"normal\"`.");
  key("initializer", FIELD(model.initializer), choices({"fan_in", "normal"}), identity,
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
  key("factor", FIELD(model.ropeScaling.factor), range(1, 1e6),
      "The new context length divided by the original one.");
  key("low_freq_factor", FIELD(model.ropeScaling.lowFreqFactor), range(1e-6, 1e6),
      "llama3: wavelengths above `original_max_position_embeddings` / `low_freq_factor` are "
      "stretched by `factor`.");
  key("high_freq_factor", FIELD(model.ropeScaling.highFreqFactor), range(1e-6, 1e6),
      "llama3: wavelengths below `original_max_position_embeddings` / `high_freq_factor` stay; "
      "more than `low_freq_factor`.");
  key("original_max_position_embeddings", FIELD(model.ropeScaling.originalMaxPositionEmbeddings),
      range(1, kMaxPositions, "tokens"), derived("model.max_position_embeddings"),
      "Context before stretching.");
  key("attention_factor", FIELD(model.ropeScaling.attentionFactor), range(0, 1e3),
      "yarn: scale of cos and sin; 0: the paper's 0.1 ln(factor) + 1.");
  key("beta_fast", FIELD(model.ropeScaling.betaFast), range(1e-6, 1e6),
      "yarn: dimensions that make more than `beta_fast` turns over the original context stay.");
  key("beta_slow", FIELD(model.ropeScaling.betaSlow), range(1e-6, 1e6),
      "yarn: dimensions that make fewer than `beta_slow` turns over the original context are "
      "stretched by `factor`; less than `beta_fast`.");
}

} // namespace lmc::config::keys
