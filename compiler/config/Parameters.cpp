#include "compiler/config/Config.h"

namespace lmc {

uint64_t parameterCount(const ModelConfig &model) {
  const uint64_t hidden = model.hiddenSize, ffn = model.intermediateSize;
  const uint64_t q = model.numAttentionHeads * model.headDim;
  const uint64_t kv = model.numKeyValueHeads * model.headDim;
  uint64_t layer = 2 * hidden          // the norms before attention and MLP
                   + 2 * hidden * q    // q [q, hidden], o [hidden, q]
                   + 2 * hidden * kv   // k, v [kv, hidden]
                   + 3 * hidden * ffn; // gate, up [ffn, hidden], down [hidden, ffn]
  if (model.attentionBias)
    layer += q + 2 * kv + hidden;
  if (model.mlpBias)
    layer += 2 * ffn + hidden;
  const uint64_t embedding = model.vocabSize * hidden;
  return embedding * (model.tieWordEmbeddings ? 1 : 2) + model.numHiddenLayers * layer + hidden;
}

} // namespace lmc
