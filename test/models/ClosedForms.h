// Parameters, operations and the traffic floor of the model families as formulas of their sizes: an
// oracle for the sums over the graph in models/decoder/Counts.h, where the quantities are defined.
#pragma once

#include "ground/config/Config.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lmc::test {

// The experts of a model: how many a layer has, how many of them a token has, the width of one, and
// how many layers have experts.
struct Mixture {
  int64_t experts = 0, chosen = 0, width = 0, layers = 0;
};

inline Mixture mixtureOf(const ModelConfig &model) {
  const bool isMixtral = model.architecture == "mixtral",
             isQwen = model.architecture == "qwen3_moe";
  if (!isMixtral && !isQwen && model.architecture != "olmoe")
    return {};
  Mixture mixture{.experts =
                      model.familyValue<int64_t>(isMixtral ? "num_local_experts" : "num_experts"),
                  .chosen = model.familyValue<int64_t>("num_experts_per_tok"),
                  .width = isQwen ? model.familyValue<int64_t>("moe_intermediate_size")
                                  : model.intermediateSize,
                  .layers = model.numHiddenLayers};
  if (isQwen) {
    mixture.layers = 0;
    const auto &dense = model.familyValue<std::vector<int64_t>>("mlp_only_layers");
    const auto step = model.familyValue<int64_t>("decoder_sparse_step");
    for (int64_t layer = step - 1; layer < model.numHiddenLayers; layer += step)
      mixture.layers += std::find(dense.begin(), dense.end(), layer) == dense.end();
  }
  return mixture;
}

inline uint64_t parameterCount(const ModelConfig &model) {
  const uint64_t hidden = model.hiddenSize, ffn = model.intermediateSize;
  if (model.architecture == "gpt2") {
    const uint64_t layer = 2 * 2 * hidden                     // two norms
                           + 3 * hidden * hidden + 3 * hidden // q, k and v
                           + hidden * hidden + hidden         // o
                           + 2 * hidden * ffn + ffn + hidden; // the MLP
    return hidden *
               (model.vocabSize * (model.tieWordEmbeddings ? 1 : 2) + model.maxPositionEmbeddings) +
           model.numHiddenLayers * layer + 2 * hidden;
  }
  const uint64_t q = model.numAttentionHeads * model.headDim;
  const uint64_t kv = model.numKeyValueHeads * model.headDim;
  uint64_t layer = 2 * hidden          // the norms before attention and MLP
                   + 2 * hidden * q    // q [q, hidden], o [hidden, q]
                   + 2 * hidden * kv   // k, v [kv, hidden]
                   + 3 * hidden * ffn; // gate, up [ffn, hidden], down [hidden, ffn]
  if (model.attentionBias)
    layer += q + 2 * kv + hidden;
  if (model.architecture == "qwen2") // the biases of q, k and v
    layer += q + 2 * kv;
  if (model.architecture == "qwen3" ||
      model.architecture == "qwen3_moe") // the norms of the heads of q and k
    layer += 2 * model.headDim;
  if (model.architecture == "olmo2" ||
      model.architecture == "olmoe") // the norms of the rows of q and k
    layer += q + kv;
  if (model.mlpBias)
    layer += 2 * ffn + hidden;
  const Mixture mixture = mixtureOf(model);
  // In the place of the MLP a router, and as many MLPs as there are experts.
  const int64_t inMlp = int64_t(3 * hidden * ffn);
  const int64_t more = mixture.experts * int64_t(hidden) +
                       mixture.experts * 3 * int64_t(hidden) * mixture.width - inMlp;
  const uint64_t embedding = model.vocabSize * hidden;
  return embedding * (model.tieWordEmbeddings ? 1 : 2) + model.numHiddenLayers * layer + hidden +
         uint64_t(mixture.layers * more);
}

struct FlopsPerToken {
  double causal, full;
};

// 6 N + 12 L h s with N weights in matrix products, L layers, h columns of q and s keys per query:
// the whole sequence (full), or the mean number of keys in sight (causal).
inline FlopsPerToken flopsPerToken(const ModelConfig &m, int64_t sequenceLength) {
  double hidden = double(m.hiddenSize), heads = double(m.numAttentionHeads * m.headDim),
         kvHeads = double(m.numKeyValueHeads * m.headDim), ffn = double(m.intermediateSize),
         layers = double(m.numHiddenLayers), seq = double(sequenceLength);
  const double mlp = m.architecture == "gpt2" ? 2 : 3; // matrices
  double layerWeights = hidden * (2 * heads + 2 * kvHeads) + mlp * hidden * ffn;
  double weights = layers * layerWeights + hidden * double(m.vocabSize);
  const Mixture mixture = mixtureOf(m); // the router, and the experts that a token has
  weights += double(mixture.layers) * hidden *
             (double(mixture.experts) + mlp * double(mixture.chosen * mixture.width) - mlp * ffn);
  double window = m.slidingWindow > 0 ? std::min(double(m.slidingWindow), seq) : seq;
  double visible = window - window * window / (2 * seq); // mean of min(i, window) over i
  return {6 * weights + 12 * layers * heads * visible, 6 * weights + 12 * layers * heads * seq};
}

// Bytes per token.
struct TrafficFloor {
  double layers, head;
};

// In elements, with h = hidden, f = ffn, V = vocabulary, and r = (heads + kv_heads) * head_dim,
// which RoPE rotates. A layer:
//   residual add + RMSNorm  4h, twice a layer (attention's, the MLP's)
//   its gradient            4h, twice
//   RoPE                    2r
//   norms of q and k        2r more, in registers with RoPE: their gradient reads x and writes dx
//   SwiGLU                  3f; its gradient: 5f, and f for the product, which is computed again
// Outside the layers:
//   embedding               2h; its gradient: h, and 2h elements of the main gradient
//   the norm that no residual add goes with (there are 2 layers + 1 norms): 2h; its gradient: 3h
//   cross entropy           2V
// GPT-2 has no RoPE; its GELU reads f and writes f, and the gradient reads 2f and writes 2f; the
// row of a position is read with that of the token, and its gradient reads dx: 2h.
// With k experts a token, SwiGLU is of k rows. They are taken from x (h and kh, and as much for the
// gradient) and summed (kh and h; the gradient reads h and kh, and writes kh).
inline TrafficFloor trafficFloor(const ModelConfig &model, DataType compute) {
  double h = double(model.hiddenSize), f = double(model.intermediateSize),
         V = double(model.vocabSize),
         r = double((model.numAttentionHeads + model.numKeyValueHeads) * model.headDim);
  double width = compute == DataType::BF16 ? 2 : compute == DataType::F32 ? 4 : 8;
  double gradientWidth = compute == DataType::F64 ? 8 : 4;
  // A norm of q or k is in registers with the rotation, but not backward: dy, x, dx.
  const bool normsHeads = model.architecture == "qwen3" || model.architecture == "qwen3_moe" ||
                          model.architecture == "olmo2" || model.architecture == "olmoe";
  // A norm with a residual add, in front of a branch or behind it: 4h forward and 4h backward in
  // front; x, the branch and the sum, then both gradients, the branch, their sum and dx behind.
  const double norms = model.architecture == "olmo2" ? 2 * (3 * h + 5 * h) : 2 * (4 * h + 4 * h);
  const bool gpt2 = model.architecture == "gpt2";
  double layer = norms + (gpt2 ? 2 * f + 4 * f : (normsHeads ? 5 : 2) * r + 3 * f + 5 * f + f);
  const Mixture mixture = mixtureOf(model);
  const auto k = double(mixture.chosen);
  const double more = 9 * (k * double(mixture.width) - f) + 2 * (h + k * h) + 2 * h + 3 * k * h;
  double head = 2 * h + h + 2 * h + 3 * h + 2 * V + (gpt2 ? 2 * h : 0);
  return {(double(model.numHiddenLayers) * layer + double(mixture.layers) * more) * width,
          head * width + 2 * h * gradientWidth};
}

} // namespace lmc::test
