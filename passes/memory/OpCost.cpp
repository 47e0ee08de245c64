#include "passes/memory/OpCost.h"

#include "dialects/dist/Dist.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;

bool lmc::isView(Operation *op) {
  return isa<lm::SplitOp, tensor::ExtractSliceOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
      op);
}

bool lmc::isFreeToRecompute(Operation *op) {
  return isView(op) || op->hasTrait<lm::FreeToRecompute>();
}

bool lmc::mayRecompute(Operation *op) {
  if (isa<dist::AllGatherOp>(op) && dist::isExchange(op))
    return true;
  return isPure(op) && !isa_and_nonnull<dist::DistDialect>(op->getDialect());
}

uint64_t lmc::bytesOf(Value value) {
  if (auto type = dyn_cast<RankedTensorType>(value.getType()))
    return byteSize(type);
  return value.getType().isIntOrFloat() ? (value.getType().getIntOrFloatBitWidth() + 7) / 8 : 8;
}

static double dim(Value value, unsigned index) {
  return double(cast<RankedTensorType>(value.getType()).getDimSize(index));
}

// Attention has two matrix products. A multiply-add counts as 2 operations. Query i of a sequence
// attends to min(i, window) keys; `visible` is the mean of min(i, window) over the queries.
static double attentionFlops(lm::AttentionOp op) {
  double seq = double(op.getSeq());
  double window = op.getWindow() > 0 ? std::min(double(op.getWindow()), seq) : seq;
  double visible = window - window * window / (2 * seq);
  return 4 * dim(op.getQ(), 0) * dim(op.getQ(), 1) * visible;
}

double lmc::forwardFlops(Operation *op) {
  return llvm::TypeSwitch<Operation *, double>(op)
      .Case<lm::LinearOp, lm::ExpertLinearOp, lm::ExpertScaledLinearOp>([](auto op) {
        return 2 * dim(op.getX(), 0) * dim(op.getX(), 1) * dim(op.getResult(), 1);
      })
      .Case<lm::MatmulOp, lm::ScaledMatmulOp>([](auto op) {
        return 2 * dim(op.getResult(), 0) * dim(op.getResult(), 1) *
               dim(op.getA(), op.getTransposeA() ? 0 : 1);
      })
      .Case([](lm::ExpertLinearGradOp op) {
        return 2 * dim(op.getX(), 0) * dim(op.getX(), 1) * dim(op.getDy(), 1);
      })
      .Case(attentionFlops)
      .Default(0.0);
}

double lmc::modelledSeconds(Operation *op, const cost::Rates &rates) {
  if (isView(op))
    return 0;
  if (double flops = forwardFlops(op); flops > 0)
    return flops / (isa<lm::AttentionOp>(op) ? rates.flopsPerSecond / 2 : rates.flopsPerSecond);
  uint64_t bytes = 0;
  for (Value result : op->getResults())
    bytes += bytesOf(result);
  if (!isFreeToRecompute(op) || isa<lm::TransposeOp, lm::QuantizeColumnsOp>(op))
    for (Value operand : op->getOperands())
      bytes += bytesOf(operand);
  return double(bytes) / rates.bytesPerSecond;
}
