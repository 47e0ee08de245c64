#include "compiler/emit/Commands.h"

#include "dialects/interfaces/LocationName.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lmc;

namespace {

// Fills the body of each kind of command.
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
    plan::GemmT body;
    body.a = sliceOf(op.getA());
    body.b = sliceOf(op.getB());
    body.d = sliceOf(op.getD());
    body.c = op.getAccumulate() ? int32_t(body.d) : optional(op.getResidual());
    body.bias = optional(op.getBias());
    body.transpose_a = op.getTransposeA();
    body.transpose_b = op.getTransposeB();
    body.batch = op.getBatch();
    body.m = extent(op.getD(), 0) / body.batch;
    body.n = extent(op.getD(), 1);
    body.k = body.transpose_a ? extent(op.getA(), 0) / body.batch : extent(op.getA(), 1);
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

  plan::AttentionT body(plan_ir::AttentionOp op) const {
    plan::AttentionT body;
    fillAttention(op, body);
    return body;
  }

  plan::AttentionGradT body(plan_ir::AttentionGradOp op) const {
    plan::AttentionGradT body;
    fillAttention(op, body);
    body.dout = sliceOf(op.getDout());
    body.dq = sliceOf(op.getDq());
    body.dk = sliceOf(op.getDk());
    body.dv = sliceOf(op.getDv());
    body.cos = optional(op.getCos());
    body.sin = optional(op.getSin());
    return body;
  }

  plan::ScatterAddT body(plan_ir::ScatterAddOp op) const {
    plan::ScatterAddT body;
    body.ids = sliceOf(op.getIds());
    body.x = sliceOf(op.getX());
    body.d = sliceOf(op.getD());
    body.rows = extent(op.getX(), 0);
    body.columns = extent(op.getX(), 1);
    body.vocabulary = extent(op.getD(), 0);
    body.accumulate = op.getAccumulate();
    return body;
  }

  plan::RouteT body(plan_ir::RouteOp op) const {
    plan::RouteT body;
    body.logits = sliceOf(op.getLogits());
    body.bias = optional(op.getBias());
    body.weights = sliceOf(op.getWeights());
    body.experts = sliceOf(op.getExperts());
    body.counts = sliceOf(op.getCounts());
    body.mass = sliceOf(op.getMass());
    fillRoute(op, body);
    return body;
  }

  plan::RouteGradT body(plan_ir::RouteGradOp op) const {
    plan::RouteGradT body;
    body.logits = sliceOf(op.getLogits());
    body.experts = sliceOf(op.getExperts());
    body.dweights = sliceOf(op.getDweights());
    body.dmass = optional(op.getDmass());
    body.dlogits = sliceOf(op.getDlogits());
    fillRoute(op, body);
    return body;
  }

  plan::SortRowsT body(plan_ir::SortRowsOp op) const {
    plan::SortRowsT body;
    body.experts = sliceOf(op.getExperts());
    body.rank = optional(op.getRank());
    body.offsets = sliceOf(op.getOffsets());
    body.rows = sliceOf(op.getRows());
    body.places = sliceOf(op.getPlaces());
    body.choices = extent(op.getPlaces(), 0);
    body.count = extent(op.getOffsets(), 0) - 1;
    body.groups = op.getGroups();
    body.first = op.getFirst();
    if (body.groups > 1)
      body.held = extent(op.getRows(), 0);
    return body;
  }

  plan::TakeRowsT body(plan_ir::TakeRowsOp op) const {
    plan::TakeRowsT body;
    body.x = sliceOf(op.getX());
    body.rows = sliceOf(op.getRows());
    body.y = sliceOf(op.getY());
    fillRows(op.getX(), op.getY(), op.getChosen(), body);
    return body;
  }

  plan::TakeRowsGradT body(plan_ir::TakeRowsGradOp op) const {
    plan::TakeRowsGradT body;
    body.dy = sliceOf(op.getDy());
    body.places = sliceOf(op.getPlaces());
    body.dx = sliceOf(op.getDx());
    fillRows(op.getDx(), op.getDy(), chosenOf(op.getPlaces(), op.getDx()), body);
    return body;
  }

  plan::CombineRowsT body(plan_ir::CombineRowsOp op) const {
    plan::CombineRowsT body;
    body.y = sliceOf(op.getY());
    body.weights = sliceOf(op.getWeights());
    body.places = sliceOf(op.getPlaces());
    body.out = sliceOf(op.getOut());
    fillRows(op.getOut(), op.getY(), chosenOf(op.getPlaces(), op.getOut()), body);
    return body;
  }

  plan::CombineRowsGradT body(plan_ir::CombineRowsGradOp op) const {
    plan::CombineRowsGradT body;
    body.dout = sliceOf(op.getDout());
    body.y = sliceOf(op.getY());
    body.weights = sliceOf(op.getWeights());
    body.rows = sliceOf(op.getRows());
    body.dy = sliceOf(op.getDy());
    body.dweights = sliceOf(op.getDweights());
    body.places = int32_t(sliceOf(op.getPlaces()));
    fillRows(op.getDout(), op.getY(), chosenOf(op.getPlaces(), op.getDout()), body);
    return body;
  }

  plan::ExpertLinearT body(plan_ir::ExpertLinearOp op) const {
    plan::ExpertLinearT body;
    body.x = sliceOf(op.getX());
    body.weight = sliceOf(op.getWeight());
    body.offsets = sliceOf(op.getOffsets());
    body.y = sliceOf(op.getY());
    fillExperts(op.getX(), op.getY(), op.getOffsets(), body);
    body.transposed = op.getTransposed();
    return body;
  }

  plan::ExpertLinearGradT body(plan_ir::ExpertLinearGradOp op) const {
    plan::ExpertLinearGradT body;
    body.dy = sliceOf(op.getDy());
    body.x = sliceOf(op.getX());
    body.offsets = sliceOf(op.getOffsets());
    body.d = sliceOf(op.getD());
    fillExperts(op.getX(), op.getDy(), op.getOffsets(), body);
    body.accumulate = op.getAccumulate();
    return body;
  }

  plan::ExpertSwigluT body(plan_ir::ExpertSwigluOp op) const {
    plan::ExpertSwigluT body;
    body.x = sliceOf(op.getX());
    body.offsets = sliceOf(op.getOffsets());
    body.y = sliceOf(op.getY());
    fillSwiglu(op.getY(), op.getOffsets(), body);
    return body;
  }

  plan::ExpertSwigluGradT body(plan_ir::ExpertSwigluGradOp op) const {
    plan::ExpertSwigluGradT body;
    body.dy = sliceOf(op.getDy());
    body.x = sliceOf(op.getX());
    body.offsets = sliceOf(op.getOffsets());
    body.dx = sliceOf(op.getDx());
    fillSwiglu(op.getDy(), op.getOffsets(), body);
    return body;
  }

  plan::CopyT body(plan_ir::CopyOp op) const {
    plan::CopyT body;
    body.x = sliceOf(op.getX());
    body.d = sliceOf(op.getD());
    return body;
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
    plan::WaitT body;
    body.command = numbers.started.lookup(op.getD());
    return body;
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
    plan::CollectiveT body;
    body.kind = kind;
    body.axis = axisOf(op.getAxis());
    body.x = sliceOf(x);
    body.d = sliceOf(op.getD());
    if (auto source = numbers.started.find(x);
        source != numbers.started.end() && numbers.hasTwoCollectiveStreams)
      body.after = int32_t(source->second);
    return body;
  }

  static plan::Axis axisOf(plan_ir::Axis axis) {
    switch (axis) {
    case plan_ir::Axis::Replicate:
      return plan::Axis::Replicate;
    case plan_ir::Axis::Shard:
      return plan::Axis::Shard;
    case plan_ir::Axis::Expert:
      return plan::Axis::Expert;
    case plan_ir::Axis::ExpertShard:
      return plan::Axis::ExpertShard;
    }
    llvm_unreachable("an axis is of a known kind");
  }

  static uint64_t extent(Value slice, unsigned dim) {
    return uint64_t(cast<plan_ir::SliceType>(slice.getType()).getContent().getDimSize(dim));
  }

  template <typename Op, typename Body> void fillRoute(Op op, Body &body) const {
    body.tokens = extent(op.getLogits(), 0);
    body.count = extent(op.getLogits(), 1);
    body.chosen = extent(op.getExperts(), 1);
    body.normalize = op.getNormalize();
    body.sigmoid = op.getSigmoid();
    body.scale = op.getScale().convertToDouble();
  }

  // `tokens` has a row for each token, which has `chosen` choices, and `rows` one for each choice
  // that is computed here.
  template <typename Body>
  void fillRows(Value tokens, Value rows, uint64_t chosen, Body &body) const {
    body.tokens = extent(tokens, 0);
    body.chosen = chosen;
    body.columns = extent(tokens, 1);
    if (const uint64_t held = extent(rows, 0); held != body.tokens * chosen)
      body.held = held;
  }
  static uint64_t chosenOf(Value places, Value tokens) {
    return extent(places, 0) / extent(tokens, 0);
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

  template <typename Body>
  void fillExperts(Value x, Value y, Value offsets, Body &body) const {
    body.rows = extent(x, 0);
    body.experts = extent(offsets, 0) - 1;
    body.inner = extent(x, 1);
    body.columns = extent(y, 1);
  }

  template <typename Body> void fillSwiglu(Value y, Value offsets, Body &body) const {
    body.rows = extent(y, 0);
    body.experts = extent(offsets, 0) - 1;
    body.columns = extent(y, 1);
  }

  // Sets the fields that attention and its gradient have in common.
  template <typename Op, typename Body> void fillAttention(Op op, Body &body) const {
    body.q = sliceOf(op.getQ());
    body.k = sliceOf(op.getK());
    body.v = sliceOf(op.getV());
    body.out = sliceOf(op.getOut());
    body.lse = sliceOf(op.getLse());
    body.starts = optional(op.getStarts());
    body.head_dim = uint32_t(op.getHeadDim());
    body.seq = uint32_t(op.getSeq());
    body.batch = uint32_t(extent(op.getQ(), 0)) / body.seq;
    body.heads = uint32_t(extent(op.getQ(), 1)) / body.head_dim;
    body.kv_heads = uint32_t(extent(op.getK(), 1)) / body.head_dim;
    body.scale = op.getScale().convertToDouble();
    body.window = uint32_t(op.getWindow());
  }

  const PlanNumbers &numbers;
};

} // namespace

FailureOr<std::unique_ptr<plan::CommandT>> lmc::emitCommand(Operation &operation,
                                                            const PlanNumbers &numbers,
                                                            const codegen::TargetCode &code) {
  const BodyEmitter emitter(numbers);
  auto command = std::make_unique<plan::CommandT>();
  LogicalResult known =
      llvm::TypeSwitch<Operation *, LogicalResult>(&operation)
          .Case<plan_ir::LaunchOp, plan_ir::GemmOp, plan_ir::LinearSwigluOp,
                plan_ir::SwigluLinearGradOp, plan_ir::AttentionOp, plan_ir::AttentionGradOp,
                plan_ir::ScatterAddOp, plan_ir::RouteOp, plan_ir::RouteGradOp, plan_ir::SortRowsOp,
                plan_ir::TakeRowsOp, plan_ir::TakeRowsGradOp, plan_ir::CombineRowsOp,
                plan_ir::CombineRowsGradOp, plan_ir::ExpertLinearOp, plan_ir::ExpertLinearGradOp,
                plan_ir::ExpertSwigluOp, plan_ir::ExpertSwigluGradOp, plan_ir::CopyOp,
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
