#include "compiler/cost/TrafficFloor.h"

#include "compiler/cost/Roofline.h"

namespace lmc::cost {

// The elements of the compute dtype that must be read and written per token, with h = hidden size,
// f = MLP size, V = vocabulary and r = (heads + kv_heads) * head_dim, the elements that RoPE
// rotates.
//
// A layer:
//   residual add + RMSNorm  reads x and the branch, writes the sum and the norm: 4h,
//                           twice a layer (before attention, before the MLP)
//   its gradient            reads dy, x and the residual's dx, writes dx: 4h, twice
//   RoPE                    reads and writes q and k: 2r; its gradient is part of attention's
//                           gradient (on a CPU 2r more, which stays in the caches)
//   SwiGLU                  reads gate and up, writes the product: 3f
//   its gradient            reads dout, gate and up, writes dgate and dup: 5f, and f more
//                           because the product is computed again there instead of kept
// Outside the layers:
//   embedding               reads a row, writes it: 2h
//   its gradient            reads dx: h; reads and adds to a row of the main gradient,
//                           2h elements of the main gradient's width
//   the RMSNorm without a residual add (there are 2 layers + 1 norms)
//                           reads x, writes y: 2h; its gradient reads dy and x, writes dx: 3h
//   cross entropy           reads the logits, writes their gradient: 2V
//
// Row statistics, weights and token ids are left out: they are below a thousandth.
TrafficFloor trafficFloor(const ModelConfig &model, DataType compute) {
  double h = double(model.hiddenSize), f = double(model.intermediateSize),
         V = double(model.vocabSize),
         r = double((model.numAttentionHeads + model.numKeyValueHeads) * model.headDim);
  double width = double(elementWidth(compute));
  double gradientWidth = compute == DataType::F64 ? 8 : 4;
  double layer = 2 * 4 * h + 2 * 4 * h + 2 * r + 3 * f + 5 * f + f;
  double head = 2 * h + h + 2 * h + 3 * h + 2 * V;
  return {double(model.numHiddenLayers) * layer * width, head * width + 2 * h * gradientWidth};
}

} // namespace lmc::cost
