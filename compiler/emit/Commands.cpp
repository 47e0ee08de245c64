#include "compiler/emit/Commands.h"

#include "compiler/emit/Variables.h"
#include "dialects/interfaces/LocationName.h"
#include "dialects/plan/Plan.h"
#include "ground/plan/CommandList.inc"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lmc;

namespace {

class BodyEmitter {
public:
  explicit BodyEmitter(const PlanNumbers &numbers) : numbers(numbers) {}

  plan::LaunchT body(plan_ir::LaunchOp op) const {
    plan::LaunchT body;
    body.kernel = numbers.kernels.lookup(op.getKernel());
    for (Value arg : op.getArgs())
      body.args.push_back(sliceOf(arg));
    body.inputs = uint32_t(op.getInputs());
    body.items = op.getItems();
    body.chunk = op.getChunk();
    return body;
  }

  plan::GemmT body(plan_ir::GemmOp op) const {
    plan::GemmT body = *product(op.getA(), op.getB(), op.getD());
    body.c = op.getAccumulate() ? int32_t(body.d) : optional(op.getResidual());
    body.bias = optional(op.getBias());
    body.scale_a = optional(op.getScaleA());
    body.scale_b = optional(op.getScaleB());
    if (op.getScaleA() &&
        cast<plan_ir::SliceType>(op.getScaleA().getType()).getContent().getRank() > 0)
      body.scaling = op.getTiles() ? plan::Scaling::Tiles : plan::Scaling::Rows;
    body.transpose_a = op.getTransposeA();
    body.transpose_b = op.getTransposeB();
    body.batch = op.getBatch();
    body.m /= body.batch;
    if (body.transpose_a)
      body.k = extent(op.getA(), 0) / body.batch;
    return body;
  }

  plan::LinearSwigluT body(plan_ir::LinearSwigluOp op) const {
    plan::LinearSwigluT body;
    body.product = product(op.getX(), op.getWeight(), op.getGu());
    body.product->transpose_b = true;
    body.a = sliceOf(op.getA());
    body.both = op.getBoth();
    return body;
  }

  plan::SwigluLinearGradT body(plan_ir::SwigluLinearGradOp op) const {
    plan::SwigluLinearGradT body;
    body.product = product(op.getDy(), op.getWeight(), op.getA());
    body.dgu = sliceOf(op.getDgu());
    body.both = op.getBoth();
    return body;
  }

#include "compiler/emit/Bodies.inc"

  plan::CopyT body(plan_ir::CopyOp op) const {
    return {{}, sliceOf(op.getX()), sliceOf(op.getD())};
  }

  plan::CollectiveT body(plan_ir::AllGatherOp op) const {
    return collective(plan::CollectiveKind::AllGather, op, op.getX());
  }
  plan::CollectiveT body(plan_ir::ReduceScatterOp op) const {
    return collective(plan::CollectiveKind::ReduceScatter, op, op.getX());
  }
  plan::CollectiveT body(plan_ir::AllReduceOp op) const {
    return collective(plan::CollectiveKind::AllReduce, op, op.getD());
  }

  plan::WaitT body(plan_ir::WaitOp op) const {
    return {{}, numbers.started.lookup(op.getD())};
  }

  uint16_t streamOf(bool isAsync, plan_ir::Axis axis) const {
    if (!isAsync)
      return 0;
    return numbers.hasTwoCollectiveStreams && axis == plan_ir::Axis::Replicate ? 2 : 1;
  }
  uint32_t sliceOf(Value value) const { return numbers.slices.lookup(value); }
  int32_t optional(Value value) const { return value ? int32_t(sliceOf(value)) : -1; }

private:
  template <typename Op>
  plan::CollectiveT collective(plan::CollectiveKind kind, Op op, Value x) const {
    plan::CollectiveT body{{}, kind, plan::Axis(op.getAxis()), sliceOf(x), sliceOf(op.getD())};
    if (auto source = numbers.started.find(x);
        source != numbers.started.end() && numbers.hasTwoCollectiveStreams)
      body.after = int32_t(source->second);
    return body;
  }

  static uint64_t extent(Value slice, unsigned dim) {
    return uint64_t(cast<plan_ir::SliceType>(slice.getType()).getContent().getDimSize(dim));
  }

  // Returns the product d = a b.
  std::unique_ptr<plan::GemmT> product(Value a, Value b, Value d) const {
    auto product = std::make_unique<plan::GemmT>();
    product->a = sliceOf(a);
    product->b = sliceOf(b);
    product->d = sliceOf(d);
    product->m = extent(d, 0);
    product->n = extent(d, 1);
    product->k = extent(a, 1);
    return product;
  }

  const PlanNumbers &numbers;
};

} // namespace

#define LMC_OP(Name) plan_ir::Name##Op,
FailureOr<std::unique_ptr<plan::CommandT>> lmc::emitCommand(Operation &operation,
                                                            const PlanNumbers &numbers,
                                                            const codegen::TargetCode &code) {
  const BodyEmitter emitter(numbers);
  auto command = std::make_unique<plan::CommandT>();
  LogicalResult known =
      llvm::TypeSwitch<Operation *, LogicalResult>(&operation)
          .Case<LMC_COMMANDS_OF_TABLE(LMC_OP) plan_ir::LaunchOp, plan_ir::GemmOp,
                plan_ir::LinearSwigluOp, plan_ir::SwigluLinearGradOp, plan_ir::CopyOp,
                plan_ir::AllGatherOp, plan_ir::ReduceScatterOp, plan_ir::AllReduceOp,
                plan_ir::WaitOp>([&](auto op) {
            command->body.Set(emitter.body(op));
            if constexpr (requires { op.getAsync(); })
              command->stream = emitter.streamOf(op.getAsync(), op.getAxis());
            command->workspace = emitter.optional(op.getScratch());
            return success();
          })
          .Default([](Operation *op) { return op->emitOpError("has no place in a plan file"); });
  if (failed(known))
    return failure();
  command->source = nameOf(operation.getLoc());
  auto step = cast<StepOpInterface>(operation);
  command->backward = step.getBackward();
  command->layer = int32_t(step.getLayerIndex());
  for (const codegen::TargetCode::Launch &launch : code.launches.lookup(&operation)) {
    auto entry = std::make_unique<plan::LaunchT>();
    entry->kernel = uint32_t(launch.kernel);
    for (Value arg : launch.args)
      entry->args.push_back(emitter.sliceOf(arg));
    entry->inputs = launch.inputs;
    entry->items = entry->chunk = 1;
    command->launches.push_back(std::move(entry));
  }
  return command;
}
