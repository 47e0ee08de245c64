#include "passes/buffers/BufferAssignment.h"

#include "passes/codegen/Hero.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;

StringRef lmc::stringifyCategory(Category category) {
  switch (category) {
  case Category::Activations:
    return "activations";
  case Category::Temporaries:
    return "temporaries";
  case Category::LibraryWorkspace:
    return "library_workspace";
  }
  return "";
}

uint64_t lmc::byteSize(RankedTensorType type) {
  return uint64_t(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
}

ArrayRef<BufferAssignment::Copy> BufferAssignment::copiesBefore(Operation *op) const {
  auto it = copies.find(op);
  return it == copies.end() ? ArrayRef<Copy>() : ArrayRef<Copy>(it->second);
}

std::optional<BufferView> BufferAssignment::workspaceOf(Operation *op) const {
  auto it = workspaces.find(op);
  if (it == workspaces.end())
    return std::nullopt;
  return BufferView{it->second, 0};
}

namespace lmc {

class BufferAssigner {
public:
  BufferAssigner(func::FuncOp function, const SymbolTable &symbols)
      : function(function), symbols(symbols), result(new BufferAssignment) {}

  LogicalResult run();

private:
  using Copy = BufferAssignment::Copy;

  LogicalResult assignViews();
  void placeStoresAndParts();
  void shareDyingInputs();
  void computeLifetimes();

  unsigned newBuffer(RankedTensorType type);
  void setView(Value value, BufferView view);
  void merge(unsigned from, BufferView into);
  bool isWholeTemporary(Value value) const;
  bool overlaps(Value value, BufferView region, uint64_t bytes) const;
  bool usedAfter(BufferView region, uint64_t bytes, int64_t position, Operation *except) const;
  bool mayMakeInPlaceOf(Value value, unsigned variableBuffer);
  bool kernelMayWriteOver(OpResult result, unsigned input) const;
  bool mayOverwrite(StringRef variable, Value sum) const;
  Value accumulatorOf(Operation *op) const;
  static bool isView(Operation *op) {
    return isa<tensor::EmptyOp, tensor::ExtractSliceOp, tensor::InsertSliceOp,
               tensor::ExpandShapeOp, tensor::CollapseShapeOp, lm::LoadOp, lm::StoreOp>(op);
  }

  // Positions at which a value's bytes are really read, views of it included
  // through their own entries.
  int64_t lastRead(Value value) const;

  func::FuncOp function;
  const SymbolTable &symbols;
  std::unique_ptr<BufferAssignment> result;
  llvm::DenseMap<Operation *, int64_t> positions;
  std::vector<SmallVector<Value>> members; // values per buffer
  llvm::StringMap<unsigned> variableBuffers;

  friend class BufferAssignment;
};

} // namespace lmc

unsigned BufferAssigner::newBuffer(RankedTensorType type) {
  Buffer buffer;
  buffer.bytes = byteSize(type);
  result->buffers.push_back(buffer);
  members.emplace_back();
  return unsigned(result->buffers.size() - 1);
}

void BufferAssigner::setView(Value value, BufferView view) {
  result->views[value] = view;
  members[view.buffer].push_back(value);
}

// All values of buffer `from`, and the copies from and to it, move to `into`.
void BufferAssigner::merge(unsigned from, BufferView into) {
  for (Value value : members[from]) {
    BufferView &view = result->views[value];
    view = {into.buffer, into.offset + view.offset};
    members[into.buffer].push_back(value);
  }
  members[from].clear();
  for (auto &[op, list] : result->copies)
    for (Copy &copy : list)
      for (BufferView *end : {&copy.from, &copy.to})
        if (end->buffer == from)
          *end = {into.buffer, into.offset + end->offset};
}

// Whether `value` is all of a buffer that is not state.
bool BufferAssigner::isWholeTemporary(Value value) const {
  BufferView view = result->view(value);
  const Buffer &buffer = result->buffers[view.buffer];
  return buffer.variable.empty() && view.offset == 0 &&
         buffer.bytes == byteSize(cast<RankedTensorType>(value.getType()));
}

bool BufferAssigner::overlaps(Value value, BufferView region, uint64_t bytes) const {
  BufferView view = result->view(value);
  int64_t size = int64_t(byteSize(cast<RankedTensorType>(value.getType())));
  return view.buffer == region.buffer && view.offset < region.offset + int64_t(bytes) &&
         region.offset < view.offset + size;
}

int64_t BufferAssigner::lastRead(Value value) const {
  int64_t last = -1;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<lm::StoreOp>(user)) // may be copied to its variable at the very end
      last = std::max(last, positions.lookup(user->getBlock()->getTerminator()));
    else if (!isView(user))
      last = std::max(last, positions.lookup(user));
    else if (auto insert = dyn_cast<tensor::InsertSliceOp>(user);
             insert && use.get() == insert.getSource() && use.getOperandNumber() == 0)
      last = std::max(last, positions.lookup(user));
  }
  return last;
}

// Whether any value that overlaps the region is read after `position`, other than by
// `except`.
bool BufferAssigner::usedAfter(BufferView region, uint64_t bytes, int64_t position,
                               Operation *except) const {
  for (Value member : members[region.buffer]) {
    if (!overlaps(member, region, bytes) || member.getDefiningOp() == except)
      continue;
    if (lastRead(member) > position)
      return true;
  }
  return false;
}

Value BufferAssigner::accumulatorOf(Operation *op) const {
  if (auto gemm = dyn_cast<kern::GemmOp>(op))
    return gemm.getAcc();
  if (auto scatter = dyn_cast<kern::ScatterAddOp>(op))
    return scatter.getAcc();
  return Value();
}

bool BufferAssigner::kernelMayWriteOver(OpResult value, unsigned input) const {
  auto launch = dyn_cast<kern::LaunchOp>(value.getOwner());
  if (!launch)
    return false;
  auto kernel = symbols.lookup<kern::KernelOp>(launch.getKernel());
  return mayShareBuffer(kernel.getBody().front(), kernel.getHero(), value.getResultNumber(),
                        input);
}

// Whether `sum` may be made at the place of `variable`: only when it ends up there.
bool BufferAssigner::mayOverwrite(StringRef variable, Value sum) const {
  if (variable.empty())
    return true;
  for (Value next = sum; next;) {
    sum = next;
    next = Value();
    for (Operation *user : sum.getUsers()) {
      if (auto store = dyn_cast<lm::StoreOp>(user); store && store.getVariable() == variable)
        return true;
      if (accumulatorOf(user) == sum)
        next = user->getResult(0);
    }
  }
  return false;
}

// Whether a slice (tensor.extract_slice or insert_slice) of a tensor of type `whole` is
// a range of its rows, and so contiguous.
template <typename SliceOp> static bool isRangeOfRows(SliceOp slice, RankedTensorType whole) {
  auto isOne = [](int64_t stride) { return stride == 1; };
  auto isZero = [](int64_t offset) { return offset == 0; };
  return llvm::all_of(slice.getStaticStrides(), isOne) &&
         llvm::all_of(slice.getStaticOffsets().drop_front(), isZero) &&
         slice.getStaticSizes().drop_front() == whole.getShape().drop_front();
}

// Values in program order; loads of variables first, so that every reader of a
// variable is known when its place is considered.
LogicalResult BufferAssigner::assignViews() {
  if (function.getNumArguments() || function.getNumResults())
    return function.emitError("has arguments or results; a function of a plan only has variables");
  Block &body = function.getBody().front();
  int64_t position = 0;
  for (Operation &op : body)
    positions[&op] = position++;
  auto variableBuffer = [&](StringRef name, RankedTensorType type) {
    auto [it, inserted] = variableBuffers.try_emplace(name, 0);
    if (inserted) {
      it->second = newBuffer(type);
      result->buffers[it->second].variable = name.str();
    }
    return it->second;
  };
  for (Operation &op : body) {
    if (auto load = dyn_cast<lm::LoadOp>(op))
      setView(load.getResult(),
              {variableBuffer(load.getVariable(), cast<RankedTensorType>(load.getType())), 0});
    if (auto store = dyn_cast<lm::StoreOp>(op))
      variableBuffer(store.getVariable(), cast<RankedTensorType>(store.getValue().getType()));
  }

  for (Operation &op : body) {
    if (isa<lm::LoadOp>(op))
      continue;
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      auto type = cast<RankedTensorType>(slice.getSource().getType());
      if (!isRangeOfRows(slice, type))
        return slice.emitOpError("is not a range of whole rows");
      int64_t rowBytes = int64_t(byteSize(type)) / type.getDimSize(0);
      BufferView view = result->view(slice.getSource());
      setView(slice.getResult(), {view.buffer, view.offset + slice.getStaticOffset(0) * rowBytes});
      continue;
    }
    if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
      auto type = cast<RankedTensorType>(insert.getDest().getType());
      if (!isRangeOfRows(insert, type))
        return insert.emitOpError("is not a range of whole rows");
      BufferView view = result->view(insert.getDest());
      // Somebody still reads the whole as it was: the result is a copy.
      bool readLater = llvm::any_of(insert.getDest().getUsers(), [&](Operation *user) {
        return positions[user] > positions[&op];
      });
      if (readLater || !result->buffers[view.buffer].variable.empty()) {
        BufferView fresh{newBuffer(type), 0};
        result->copies[&op].push_back({view, fresh, type});
        view = fresh;
      }
      setView(insert.getResult(), view);
      continue;
    }
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
      setView(op.getResult(0), result->view(op.getOperand(0)));
      continue;
    }
    if (Value accumulator = accumulatorOf(&op)) {
      auto type = cast<RankedTensorType>(accumulator.getType());
      BufferView view = result->view(accumulator);
      // The product must not read what it is added to.
      unsigned readers = unsigned(llvm::count_if(op.getOperands(), [&](Value operand) {
        return overlaps(operand, view, byteSize(type));
      }));
      if (readers > 1 || usedAfter(view, byteSize(type), positions[&op], &op) ||
          !mayOverwrite(result->buffers[view.buffer].variable, op.getResult(0))) {
        BufferView fresh{newBuffer(type), 0};
        result->copies[&op].push_back({view, fresh, type});
        view = fresh;
      }
      setView(op.getResult(0), view);
      continue;
    }
    for (Value value : op.getResults())
      setView(value, {newBuffer(cast<RankedTensorType>(value.getType())), 0});
  }
  return success();
}

// A value stored to a variable may be made at the variable's place when nobody reads
// the old contents after it is made; the op that makes it may, where it writes in place.
bool BufferAssigner::mayMakeInPlaceOf(Value value, unsigned variableBuffer) {
  Operation *producer = value.getDefiningOp();
  if (!producer || isView(producer) || !isWholeTemporary(value))
    return false;
  // The first op that makes the buffer: an accumulation starts earlier than it ends.
  int64_t made = positions.lookup(producer);
  for (Value member : members[result->view(value).buffer])
    if (Operation *op = member.getDefiningOp(); op && !isView(op) && positions.lookup(op) < made) {
      producer = op;
      made = positions.lookup(op);
    }
  for (Value member : members[variableBuffer]) {
    if (!isa_and_nonnull<lm::LoadOp, tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                         tensor::CollapseShapeOp>(member.getDefiningOp()))
      return false; // something else is made there already
    int64_t last = lastRead(member);
    if (last > made)
      return false;
    if (last == made)
      for (OpOperand &operand : producer->getOpOperands())
        if (operand.get() == member &&
            (producer != value.getDefiningOp() ||
             !kernelMayWriteOver(cast<OpResult>(value), operand.getOperandNumber())))
          return false;
  }
  return true;
}

void BufferAssigner::placeStoresAndParts() {
  Block &body = function.getBody().front();
  for (Operation &op : body) {
    if (auto store = dyn_cast<lm::StoreOp>(op)) {
      unsigned place = variableBuffers.lookup(store.getVariable());
      Value value = store.getValue();
      BufferView view = result->view(value);
      if (view.buffer == place)
        continue;
      // Reshapes of the stored value are members of its buffer: look at what made it.
      Value made = value;
      while (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
          made.getDefiningOp()))
        made = made.getDefiningOp()->getOperand(0);
      if (mayMakeInPlaceOf(made, place)) {
        merge(view.buffer, {place, 0});
        continue;
      }
      // Loads see the state from before the first store, so the variable is written last.
      // The old contents of another variable may be overwritten by then: they are set aside.
      auto type = cast<RankedTensorType>(value.getType());
      bool madeHere = made.getDefiningOp() && !isView(made.getDefiningOp());
      if (!result->buffers[view.buffer].variable.empty() && !madeHere) {
        BufferView aside{newBuffer(type), 0};
        result->copies[&op].push_back({view, aside, type});
        view = aside;
      }
      result->copies[body.getTerminator()].push_back({view, {place, 0}, type});
      continue;
    }
    auto insert = dyn_cast<tensor::InsertSliceOp>(op);
    if (!insert)
      continue;
    Value part = insert.getSource();
    auto wholeType = cast<RankedTensorType>(insert.getDest().getType());
    auto partType = cast<RankedTensorType>(part.getType());
    BufferView whole = result->view(insert.getResult());
    BufferView region{whole.buffer, whole.offset + insert.getStaticOffset(0) *
                                                       int64_t(byteSize(wholeType)) /
                                                       wholeType.getDimSize(0)};
    Operation *producer = part.getDefiningOp();
    // With a copy of the whole first, the part can only follow it.
    bool inPlace = producer && !isView(producer) && isWholeTemporary(part) &&
                   result->view(part).buffer != whole.buffer &&
                   result->copiesBefore(&op).empty();
    // The region must be idle between the making of the part and its insertion.
    if (inPlace) {
      int64_t made = positions.lookup(producer), inserted = positions.lookup(&op);
      for (Value member : members[region.buffer]) {
        if (!overlaps(member, region, byteSize(partType)))
          continue;
        Operation *definition = member.getDefiningOp();
        bool writes = definition && !isView(definition) && positions.lookup(definition) <= inserted;
        bool reads = llvm::any_of(member.getUses(), [&](OpOperand &use) {
          Operation *user = use.getOwner();
          int64_t at = positions.lookup(user);
          return !isView(user) && at >= made && at <= inserted;
        });
        inPlace &= !writes && !reads;
      }
    }
    if (inPlace)
      merge(result->view(part).buffer, region);
    else
      result->copies[&op].push_back({result->view(part), region, partType});
  }
}

// A kernel's result takes over an input of the same size that nobody reads afterwards.
void BufferAssigner::shareDyingInputs() {
  for (Operation &op : function.getBody().front()) {
    auto launch = dyn_cast<kern::LaunchOp>(op);
    if (!launch)
      continue;
    llvm::SmallDenseSet<unsigned> taken;
    for (OpResult value : launch->getResults()) {
      if (!isWholeTemporary(value) || members[result->view(value).buffer].front() != value)
        continue;
      for (OpOperand &operand : launch->getOpOperands()) {
        unsigned buffer = result->view(operand.get()).buffer;
        if (!isWholeTemporary(operand.get()) || taken.contains(buffer) ||
            result->buffers[buffer].bytes != byteSize(cast<RankedTensorType>(value.getType())))
          continue;
        if (buffer == result->view(value).buffer ||
            usedAfter({buffer, 0}, result->buffers[buffer].bytes, positions[&op], nullptr) ||
            !kernelMayWriteOver(value, operand.getOperandNumber()))
          continue;
        // The same bytes may come in through several operands: all must allow it.
        bool allAllow = llvm::all_of(launch->getOpOperands(), [&](OpOperand &other) {
          return result->view(other.get()).buffer != buffer ||
                 kernelMayWriteOver(value, other.getOperandNumber());
        });
        if (!allAllow)
          continue;
        merge(result->view(value).buffer, {buffer, 0});
        taken.insert(buffer);
        break;
      }
    }
  }
}

void BufferAssigner::computeLifetimes() {
  for (Operation &op : function.getBody().front()) {
    int64_t position = positions[&op];
    auto touch = [&](unsigned id) {
      Buffer &buffer = result->buffers[id];
      buffer.first = std::min(buffer.first, position);
      buffer.last = std::max(buffer.last, position);
    };
    for (const Copy &copy : result->copiesBefore(&op)) {
      touch(copy.from.buffer);
      touch(copy.to.buffer);
    }
    if (isView(&op) || isa<func::ReturnOp>(op))
      continue;
    for (Value operand : op.getOperands())
      touch(result->view(operand).buffer);
    for (Value value : op.getResults())
      touch(result->view(value).buffer);
    // Scratch of library calls lives during the call.
    if (auto grad = dyn_cast<kern::AttentionGradOp>(op)) {
      auto type = cast<RankedTensorType>(grad.getQ().getType());
      if (type.getElementTypeBitWidth() < 32) {
        unsigned id = newBuffer(type.clone(Float32Type::get(op.getContext())));
        result->buffers[id].category = Category::LibraryWorkspace;
        result->workspaces[&op] = id;
        touch(id);
      }
    }
  }
  for (unsigned id = 0; id < members.size(); ++id)
    for (Value member : members[id]) {
      Operation *op = member.getDefiningOp();
      if (!op || op->hasAttr("lm.backward"))
        continue;
      if (llvm::any_of(member.getUsers(),
                       [](Operation *user) { return user->hasAttr("lm.backward"); }))
        result->buffers[id].category = Category::Activations;
    }
}

LogicalResult BufferAssigner::run() {
  if (failed(assignViews()))
    return failure();
  placeStoresAndParts();
  shareDyingInputs();
  computeLifetimes();
  return success();
}

FailureOr<std::unique_ptr<BufferAssignment>>
BufferAssignment::compute(func::FuncOp function, const SymbolTable &symbols) {
  BufferAssigner assigner(function, symbols);
  if (failed(assigner.run()))
    return failure();
  return std::move(assigner.result);
}
