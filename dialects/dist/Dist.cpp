#include "dialects/dist/Dist.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::dist;

#include "dialects/dist/DistDialect.cpp.inc"
#include "dialects/dist/DistEnums.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/dist/DistOps.cpp.inc"

void DistDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/dist/DistOps.cpp.inc"
      >();
}

LogicalResult MeshOp::verify() {
  if (int64_t(getReplicate()) <= 0 || int64_t(getShard()) <= 0 || int64_t(getExperts()) <= 0)
    return emitOpError("needs positive axis sizes");
  if (getShard() % getExperts() != 0)
    return emitOpError("has ") << getExperts() << " groups of experts, which do not divide "
                               << getShard() << " ranks";
  return success();
}

int64_t MeshOp::ranksAlong(Axis axis) {
  switch (axis) {
  case Axis::Replicate:
    return int64_t(getReplicate());
  case Axis::Shard:
    return int64_t(getShard());
  case Axis::Expert:
    return int64_t(getExperts());
  case Axis::ExpertShard:
    return int64_t(getShard() / getExperts());
  }
  llvm_unreachable("an axis is of a known kind");
}

bool lmc::dist::isCollective(Operation *op) {
  return isa<AllGatherOp, ReduceScatterOp, AllReduceOp>(op);
}

bool lmc::dist::isExchange(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<AllGatherOp, ReduceScatterOp, AllReduceOp>(
          [](auto each) { return each.getAxis() == Axis::Expert; })
      .Default(false);
}

bool lmc::dist::isAsync(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<AllGatherOp, ReduceScatterOp, AllReduceOp>([](auto each) { return each.getAsync(); })
      .Default(false);
}

bool lmc::dist::isUnfinished(Value value) {
  Operation *op = value.getDefiningOp();
  return op && isAsync(op);
}

// Checks that dimension 0 of the result is that of the input, times the number of ranks
// (all-gather) or divided by it (reduce-scatter). Checks which ops take an async result.
template <typename Op> static LogicalResult verifyCollective(Op op) {
  auto mesh = SymbolTable::lookupNearestSymbolFrom<MeshOp>(op, op.getMeshAttr());
  if (!mesh)
    return op.emitOpError("refers to ") << op.getMeshAttr() << ", which is no dist.mesh";
  const int64_t ranks = mesh.ranksAlong(op.getAxis());
  const int64_t numerator = std::is_same_v<Op, AllGatherOp> ? ranks : 1;
  const int64_t denominator = std::is_same_v<Op, ReduceScatterOp> ? ranks : 1;
  if (isAsync(op) && !op->hasOneUse())
    return op.emitOpError(
        "is async, so exactly one dist.wait or async collective takes its result");
  if (isAsync(op) && !isa<WaitOp>(*op->user_begin()) && !isAsync(*op->user_begin()))
    return op.emitOpError("is async, and '")
           << op->user_begin()->getName() << "' reads its result without a dist.wait";
  RankedTensorType in = op.getInput().getType(), out = op.getType();
  if (in.getElementType() != out.getElementType() || in.getRank() != out.getRank() ||
      in.getRank() == 0 || in.getShape().drop_front() != out.getShape().drop_front() ||
      in.getDimSize(0) * numerator != out.getDimSize(0) * denominator)
    return op.emitOpError("cannot turn ")
           << in << " into " << out << " over " << std::max(numerator, denominator) << " ranks";
  return success();
}

LogicalResult AllGatherOp::verify() { return verifyCollective(*this); }
LogicalResult ReduceScatterOp::verify() { return verifyCollective(*this); }
LogicalResult AllReduceOp::verify() { return verifyCollective(*this); }

LogicalResult WaitOp::verify() {
  if (!isUnfinished(getStarted()))
    return emitOpError("waits for what no async collective has started");
  // An all-reduce works in place. Any other collective reads its input until it ends, so the
  // dist.wait must name that input.
  for (Operation *op = getStarted().getDefiningOp(); op;) {
    Value input = op->getOperand(0);
    if (!isUnfinished(input) && !isa<AllReduceOp>(op) && !llvm::is_contained(getInputs(), input))
      return emitOpError("does not name the input of '") << op->getName() << "', which it ends";
    op = isUnfinished(input) ? input.getDefiningOp() : nullptr;
  }
  return success();
}

//===-- Gradients ---------------------------------------------------------------------------===//

// Integer results, such as indices, have no gradient.
bool AllGatherOp::hasGradient(unsigned) {
  return isa<FloatType>(cast<RankedTensorType>(getType()).getElementType());
}

Gradients AllGatherOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  return SmallVector<Value>{ReduceScatterOp::create(b, getLoc(), getInput().getType(),
                                                    cotangents[0], getMesh(), getAxis(),
                                                    /*async=*/false)};
}

Gradients ReduceScatterOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  return SmallVector<Value>{AllGatherOp::create(b, getLoc(), getInput().getType(), cotangents[0],
                                                getMesh(), getAxis(), /*async=*/false)};
}
