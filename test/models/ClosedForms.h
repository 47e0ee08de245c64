// Parameters, operations and the traffic floor of the model families as formulas of their sizes: an
// oracle for the sums over the graph in models/decoder/Counts.h, where the quantities are defined.
#pragma once

#include "compiler/config/Config.h"

#include <algorithm>
#include <cstdint>

namespace lmc::test {

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
  if (model.architecture == "qwen3") // the norms of the heads of q and k
    layer += 2 * model.headDim;
  if (model.architecture == "olmo2") // the norms of the rows of q and k
    layer += q + kv;
  if (model.mlpBias)
    layer += 2 * ffn + hidden;
  if (model.architecture == "mixtral") { // a router, and as many MLPs as there are experts
    const auto experts = uint64_t(model.familyValue<int64_t>("num_local_experts"));
    layer += experts * hidden + (experts - 1) * 3 * hidden * ffn;
  }
  const uint64_t embedding = model.vocabSize * hidden;
  return embedding * (model.tieWordEmbeddings ? 1 : 2) + model.numHiddenLayers * layer + hidden;
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
  if (m.architecture == "mixtral") // the router, and the experts that a token has
    layerWeights += hidden * double(m.familyValue<int64_t>("num_local_experts")) +
                    double(m.familyValue<int64_t>("num_experts_per_tok") - 1) * mlp * hidden * ffn;
  double weights = layers * layerWeights + hidden * double(m.vocabSize);
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
  const bool normsHeads = model.architecture == "qwen3" || model.architecture == "olmo2";
  // A norm with a residual add, in front of a branch or behind it: 4h forward and 4h backward in
  // front; x, the branch and the sum, then both gradients, the branch, their sum and dx behind.
  const double norms = model.architecture == "olmo2" ? 2 * (3 * h + 5 * h) : 2 * (4 * h + 4 * h);
  const bool gpt2 = model.architecture == "gpt2";
  double layer = norms + (gpt2 ? 2 * f + 4 * f : (normsHeads ? 5 : 2) * r + 3 * f + 5 * f + f);
  if (model.architecture == "mixtral") {
    const auto k = double(model.familyValue<int64_t>("num_experts_per_tok"));
    layer += (k - 1) * 9 * f + 2 * (h + k * h) + 2 * h + 3 * k * h;
  }
  double head = 2 * h + h + 2 * h + 3 * h + 2 * V + (gpt2 ? 2 * h : 0);
  return {double(model.numHiddenLayers) * layer * width, head * width + 2 * h * gradientWidth};
}

} // namespace lmc::test
