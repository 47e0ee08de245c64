// How much arithmetic a token costs, in the two conventions of MFU.
#include "models/Model.h"

#include <algorithm>

using namespace lmc;

FlopsPerToken lmc::modelFlopsPerToken(const ModelConfig &m, int64_t sequenceLength) {
  double hidden = double(m.hiddenSize), heads = double(m.numAttentionHeads * m.headDim),
         kvHeads = double(m.numKeyValueHeads * m.headDim), ffn = double(m.intermediateSize),
         layers = double(m.numHiddenLayers), seq = double(sequenceLength);
  double layerWeights = hidden * (2 * heads + 2 * kvHeads) + 3 * hidden * ffn;
  double matmulWeights = layers * layerWeights + hidden * double(m.vocabSize);
  // Keys that an average query sees, times two to be in units of `seq` when full.
  double window = m.slidingWindow > 0 ? std::min(double(m.slidingWindow), seq) : seq;
  double visible = window - window * window / (2 * seq); // mean of min(i, window) over i
  double attentionFull = 12 * layers * heads * seq;
  double attentionCausal = 12 * layers * heads * visible;
  return {6 * matmulWeights + attentionCausal, 6 * matmulWeights + attentionFull};
}
