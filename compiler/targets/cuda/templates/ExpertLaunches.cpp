// The launches of the commands of a mixture of experts, and their scratch memory.
#include "compiler/targets/cuda/templates/CommandTemplates.h"
#include "compiler/targets/cuda/templates/ExpertGemmTemplates.h"
#include "compiler/targets/cuda/templates/ExpertRowsTemplates.h"
#include "compiler/targets/cuda/templates/RouteTemplates.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

// Returns the fields of a router's shape that its op and the op of its gradient share.
template <typename Op> RouteShape routeShapeOf(Op op) {
  RankedTensorType logits = contentOf(op.getLogits());
  return {.tokens = logits.getDimSize(0),
          .experts = logits.getDimSize(1),
          .chosen = contentOf(op.getExperts()).getDimSize(1),
          .type = *dataTypeOf(logits.getElementType()),
          .normalize = op.getNormalize(),
          .sigmoid = op.getSigmoid(),
          .scale = op.getScale().convertToDouble()};
}

// Returns a shape with the fields that ExpertRowsShape::sortBytes() reads.
template <typename Op> ExpertRowsShape sortShapeOf(Op op) {
  return {.tokens = contentOf(op.getExperts()).getDimSize(0),
          .chosen = contentOf(op.getExperts()).getDimSize(1),
          .experts = contentOf(op.getOffsets()).getDimSize(0) - 1,
          .columns = 1};
}

// `tokens` has one row per token. `rows` has one row per choice that this rank computes.
ExpertRowsShape rowsShapeOf(Value tokens, Value rows, int64_t chosen) {
  return {.tokens = contentOf(tokens).getDimSize(0),
          .chosen = chosen,
          .experts = 1, // any value is right: the kernels of this shape do not read it
          .columns = contentOf(tokens).getDimSize(1),
          .type = *dataTypeOf(contentOf(tokens).getElementType()),
          .held = contentOf(rows).getDimSize(0)};
}

int64_t chosenOf(Value places, Value tokens) {
  return contentOf(places).getDimSize(0) / contentOf(tokens).getDimSize(0);
}

ExpertGemmShape expertShapeOf(Value x, Value y, Value offsets, const CudaArch &arch) {
  return {.rows = contentOf(x).getDimSize(0),
          .experts = contentOf(offsets).getDimSize(0) - 1,
          .inner = contentOf(x).getDimSize(1),
          .columns = contentOf(y).getDimSize(1),
          .type = *dataTypeOf(contentOf(x).getElementType()),
          .warpgroups = arch.hasWarpgroups()};
}

// The shape's `columns` is the number of columns of `y`, half of the columns of the input x.
ExpertRowsShape swigluShapeOf(Value y, Value offsets) {
  return {contentOf(y).getDimSize(0), 1, contentOf(offsets).getDimSize(0) - 1,
          contentOf(y).getDimSize(1), *dataTypeOf(contentOf(y).getElementType())};
}

// Returns the only launch of a command, on all its operands.
std::vector<TemplateLaunch> alone(CudaKernel kernel, CommandOpInterface op) {
  return {onOperands(std::move(kernel), op)};
}

} // namespace

std::vector<TemplateLaunch> templatesOf(plan_ir::RouteOp op, const CudaArch &) {
  RouteShape shape = routeShapeOf(op);
  shape.bias = bool(op.getBias());
  std::vector<CudaKernel> kernels = routeKernels(shape);
  return {{std::move(kernels[0]),
           {op.getLogits(), op.getBias()},
           {op.getWeights(), op.getExperts(), op.getWorkspace()}},
          {std::move(kernels[1]), {op.getWorkspace()}, {op.getCounts(), op.getMass()}}};
}

RankedTensorType scratchOf(kern::RouteOp op) {
  return bytesType(op, routeShapeOf(op).workspaceBytes());
}

std::vector<TemplateLaunch> templatesOf(plan_ir::RouteGradOp op, const CudaArch &) {
  RouteShape shape = routeShapeOf(op);
  shape.mass = bool(op.getDmass());
  return alone(routeGradKernel(shape), op);
}

std::vector<TemplateLaunch> templatesOf(plan_ir::SortRowsOp op, const CudaArch &) {
  ExpertRowsShape shape = sortShapeOf(op);
  shape.groups = int64_t(op.getGroups());
  shape.first = int64_t(op.getFirst());
  shape.held = contentOf(op.getRows()).getDimSize(0);
  if (Value rank = op.getRank())
    shape.type = *dataTypeOf(contentOf(rank).getElementType());
  std::vector<CudaKernel> kernels = sortRowsKernels(shape);
  return {{std::move(kernels[0]), {op.getExperts(), op.getRank()}, {op.getWorkspace()}},
          {std::move(kernels[1]),
           {op.getExperts(), op.getRank(), op.getWorkspace()},
           {op.getOffsets(), op.getRows(), op.getPlaces()}}};
}

RankedTensorType scratchOf(kern::SortRowsOp op) {
  return bytesType(op, sortShapeOf(op).sortBytes());
}

std::vector<TemplateLaunch> templatesOf(plan_ir::TakeRowsOp op, const CudaArch &) {
  return alone(takeRowsKernel(rowsShapeOf(op.getX(), op.getY(), int64_t(op.getChosen()))), op);
}
std::vector<TemplateLaunch> templatesOf(plan_ir::TakeRowsGradOp op, const CudaArch &) {
  const int64_t chosen = chosenOf(op.getPlaces(), op.getDx());
  return alone(takeRowsGradKernel(rowsShapeOf(op.getDx(), op.getDy(), chosen)), op);
}
std::vector<TemplateLaunch> templatesOf(plan_ir::CombineRowsOp op, const CudaArch &) {
  const int64_t chosen = chosenOf(op.getPlaces(), op.getOut());
  return alone(combineRowsKernel(rowsShapeOf(op.getOut(), op.getY(), chosen)), op);
}
std::vector<TemplateLaunch> templatesOf(plan_ir::CombineRowsGradOp op, const CudaArch &) {
  const int64_t chosen = chosenOf(op.getPlaces(), op.getDout());
  return alone(combineRowsGradKernel(rowsShapeOf(op.getDout(), op.getY(), chosen)), op);
}

std::vector<TemplateLaunch> templatesOf(plan_ir::ExpertLinearOp op, const CudaArch &arch) {
  ExpertGemmShape shape = expertShapeOf(op.getX(), op.getY(), op.getOffsets(), arch);
  shape.transposed = op.getTransposed();
  std::vector<TemplateLaunch> ways = alone(expertGemmKernel(shape), op);
  if (shape.warpgroups && shape.isTiled()) {
    shape.blocks = arch.chip.sms;
    ways.push_back(onOperands(expertGemmKernel(shape), op)); // alternative with persistent blocks
  }
  return ways;
}
std::vector<TemplateLaunch> templatesOf(plan_ir::ExpertLinearGradOp op, const CudaArch &arch) {
  ExpertGemmShape shape = expertShapeOf(op.getX(), op.getDy(), op.getOffsets(), arch);
  shape.accumulate = op.getAccumulate();
  return alone(expertGemmGradKernel(shape), op);
}

std::vector<TemplateLaunch> templatesOf(plan_ir::ExpertSwigluOp op, const CudaArch &) {
  return alone(expertSwigluKernel(swigluShapeOf(op.getY(), op.getOffsets())), op);
}
std::vector<TemplateLaunch> templatesOf(plan_ir::ExpertSwigluGradOp op, const CudaArch &) {
  return alone(expertSwigluGradKernel(swigluShapeOf(op.getDy(), op.getOffsets())), op);
}

} // namespace lmc::codegen
