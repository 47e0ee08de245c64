#include "passes/fusion/queue/LiveBytes.h"

#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"
#include "passes/memory/OpCost.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/IntEqClasses.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;

static Operation *stateOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<lm::LoadOp>(op))
      return op;
    if (!isView(op))
      return nullptr;
    value = op->getOperand(0);
  }
  return nullptr;
}

LiveBytes::LiveBytes(func::FuncOp function) : block(function.getBody().front()) {
  llvm::DenseSet<Value> others;
  auto module = function->getParentOfType<ModuleOp>();
  // Layers are called directly in the bodies of functions, never inside a region of another op.
  for (auto caller : module.getOps<func::FuncOp>())
    for (auto call : caller.getBody().getOps<func::CallOp>())
      if (call.getCallee() == function.getSymName())
        for (auto [argument, operand] : llvm::zip(block.getArguments(), call.getOperands()))
          (stateOf(operand) ? stateArguments : others).insert(argument);
  for (Value argument : others)
    stateArguments.erase(argument);
}

namespace {

// Values that share bytes.
struct Group {
  uint64_t bytes = 0;
  int64_t first = INT64_MAX, last = -1; // the first and the last step at which the bytes are live
};

class Groups {
public:
  explicit Groups(Block &block, const llvm::DenseSet<Value> &stateArguments);
  Group &of(Value value) { return groups[classes[numbers.lookup(value)]]; }
  std::vector<Group> groups;

private:
  llvm::DenseMap<Value, unsigned> numbers;
  llvm::IntEqClasses classes;
};

} // namespace

// Returns the operands whose bytes the op's result shares.
static SmallVector<Value> sharedOperands(Operation *op) {
  if (isView(op))
    return {op->getOperand(0)};
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return {insert.getSource(), insert.getDest()};
  if (auto command = dyn_cast<CommandOpInterface>(op))
    if (Value accumulated = command.getAccumulated())
      return {accumulated};
  return {};
}

Groups::Groups(Block &block, const llvm::DenseSet<Value> &stateArguments) {
  SmallVector<Value> values(block.getArguments().begin(), block.getArguments().end());
  for (Operation &op : block)
    llvm::append_range(values, op.getResults());
  classes.grow(unsigned(values.size()));
  numbers.reserve(unsigned(values.size()));
  for (auto [number, value] : llvm::enumerate(values))
    numbers[value] = unsigned(number);
  for (Operation &op : block)
    for (Value operand : sharedOperands(&op))
      classes.join(numbers.lookup(operand), numbers.lookup(op.getResult(0)));
  classes.compress();
  groups.resize(classes.getNumClasses());
  llvm::DenseSet<unsigned> state;
  for (Value value : values) {
    unsigned group = classes[numbers.lookup(value)];
    groups[group].bytes = std::max(groups[group].bytes, bytesOf(value));
    if (stateArguments.contains(value) || isa_and_nonnull<lm::LoadOp>(value.getDefiningOp()))
      state.insert(group);
  }
  for (unsigned group : state)
    groups[group].bytes = 0;
}

std::vector<uint64_t> LiveBytes::bytesAt(ArrayRef<Step> steps) const {
  Groups groups(block, stateArguments);
  llvm::DenseMap<Operation *, int64_t> stepOf; // counts from 1; arguments are live from step 0
  stepOf.reserve(unsigned(steps.size()));
  for (auto [step, ops] : llvm::enumerate(steps))
    for (Operation *op : ops)
      stepOf[op] = int64_t(step) + 1;
  auto touch = [&](Value value, int64_t step) {
    Group &group = groups.of(value);
    group.first = std::min(group.first, step);
    group.last = std::max(group.last, step);
  };
  auto madeAt = [&](Value value) {
    Operation *maker = value.getDefiningOp();
    return maker ? stepOf.lookup(maker) : 0;
  };
  auto isNoWork = [](Operation *op) {
    return isView(op) || isa<tensor::EmptyOp, tensor::InsertSliceOp, lm::LoadOp>(op);
  };
  for (Operation &op : block) {
    if (isNoWork(&op))
      continue;
    int64_t step = stepOf.lookup(&op);
    for (Value operand : op.getOperands()) {
      if (madeAt(operand) != step)
        touch(operand, step);
      if (isa<BlockArgument>(operand))
        touch(operand, 0);
    }
    for (Value result : op.getResults())
      if (llvm::any_of(result.getUsers(),
                       [&](Operation *user) { return stepOf.lookup(user) != step; }))
        touch(result, step);
  }

  // begins[i] and ends[i] have the bytes of each group that becomes live, or dies, at step i.
  size_t count = steps.size() + 1;
  std::vector<int64_t> change(count + 1);
  std::vector<SmallVector<uint64_t>> begins(count), ends(count);
  for (const Group &group : groups.groups) {
    if (group.last < 0 || group.bytes == 0)
      continue;
    change[size_t(group.first)] += int64_t(group.bytes);
    change[size_t(group.last) + 1] -= int64_t(group.bytes);
    if (group.first == group.last)
      continue;
    begins[size_t(group.first)].push_back(group.bytes);
    ends[size_t(group.last)].push_back(group.bytes);
  }
  int64_t live = change[0];
  std::vector<uint64_t> bytes;
  for (size_t step = 1; step < count; ++step) {
    live += change[step];
    int64_t shared = 0;
    if (isa<kern::FusionOp, kern::LaunchOp>(steps[step - 1].front()))
      for (uint64_t bytes : begins[step])
        if (auto *same = llvm::find(ends[step], bytes); same != ends[step].end()) {
          ends[step].erase(same);
          shared += int64_t(bytes);
        }
    bytes.push_back(uint64_t(live - shared));
  }
  return bytes;
}
