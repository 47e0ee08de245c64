#include "compiler/kernels/Scratch.h"

#include "compiler/kernels/ScatterAddLayout.h"
#include "dialects/kern/Kern.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;

// On the CPU dq is summed in f32, as large as q. On CUDA a first kernel leaves the row sums of
// dout * out, one per query and head, for the second.
static RankedTensorType attentionGradScratch(kern::AttentionGradOp grad, BufferTarget target) {
  auto type = cast<RankedTensorType>(grad.getQ().getType());
  if (target == BufferTarget::Cuda)
    return cast<RankedTensorType>(grad.getLse().getType());
  return type.getElementTypeBitWidth() < 32 ? type.clone(Float32Type::get(grad.getContext()))
                                            : RankedTensorType();
}

// The CPU adds one row after the other. On CUDA they are sorted by id first.
static RankedTensorType scatterAddScratch(kern::ScatterAddOp scatter, BufferTarget target) {
  if (target == BufferTarget::Cpu)
    return {};
  auto x = cast<RankedTensorType>(scatter.getX().getType());
  auto d = cast<RankedTensorType>(scatter.getType());
  int64_t bytes = scatterAddWorkspaceBytes(x.getDimSize(0), x.getDimSize(1), d.getDimSize(0),
                                           d.getElementTypeBitWidth() / 8);
  return RankedTensorType::get(bytes, IntegerType::get(scatter.getContext(), 8));
}

RankedTensorType lmc::scratchTypeOf(Operation *op, BufferTarget target) {
  if (auto grad = dyn_cast<kern::AttentionGradOp>(op))
    return attentionGradScratch(grad, target);
  if (auto scatter = dyn_cast<kern::ScatterAddOp>(op))
    return scatterAddScratch(scatter, target);
  return {};
}
