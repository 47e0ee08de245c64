#include "passes/buffers/BufferAssignment.h"

#include "compiler/kernels/Hero.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;

uint64_t lmc::byteSize(RankedTensorType type) {
  return uint64_t(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
}

ArrayRef<BufferAssignment::Copy> BufferAssignment::copiesBefore(Operation *op) const {
  auto it = copies.find(op);
  return it == copies.end() ? ArrayRef<Copy>() : ArrayRef<Copy>(it->second);
}

std::optional<BufferAssignment::Workspace> BufferAssignment::workspaceOf(Operation *op) const {
  auto it = workspaces.find(op);
  if (it == workspaces.end())
    return std::nullopt;
  return it->second;
}

namespace lmc {

class BufferAssigner {
public:
  BufferAssigner(func::FuncOp function, const SymbolTable &symbols, const Target &target,
                 bool reuse)
      : function(function), symbols(symbols), target(target), reuse(reuse),
        result(new BufferAssignment) {}

  LogicalResult run();

private:
  using Copy = BufferAssignment::Copy;

  LogicalResult assignViews();
  void placeStoresAndParts();
  void shareDyingInputs();
  void computeLifetimes();

  unsigned newBuffer(RankedTensorType type);
  void setView(Value value, BufferView view);
  bool mayMerge(unsigned from, BufferView into) const;
  void merge(unsigned from, BufferView into);
  bool isWholeTemporary(Value value) const;
  bool takesSpacedRuns(unsigned buffer) const;
  static bool readersTakeSpacedRuns(Value value);
  bool overlaps(Value value, BufferView region, uint64_t bytes) const;
  bool mayTakeOver(Operation *op, unsigned buffer, BufferView region) const;
  bool usedAfter(BufferView region, uint64_t bytes, int64_t position, Operation *except) const;
  bool mayMakeInPlaceOf(Value value, unsigned variableBuffer);
  bool kernelMayWriteOver(OpResult result, unsigned input) const;
  bool mayOverwrite(StringRef variable, Value sum) const;
  static bool isView(Operation *op) {
    return isa<tensor::EmptyOp, tensor::ExtractSliceOp, tensor::InsertSliceOp,
               tensor::ExpandShapeOp, tensor::CollapseShapeOp, lm::LoadOp, lm::StoreOp>(op);
  }

  // Positions at which a value's bytes are really read, views of it included
  // through their own entries.
  int64_t lastRead(Value value) const;

  func::FuncOp function;
  const SymbolTable &symbols;
  const Target &target;
  const bool reuse;
  std::unique_ptr<BufferAssignment> result;
  llvm::DenseMap<Operation *, int64_t> positions;
  std::vector<SmallVector<Value>> members; // values per buffer
  llvm::StringMap<unsigned> variableBuffers;
  // Whether a kernel's result may be written over an input, by their numbers.
  mutable llvm::DenseMap<std::pair<Operation *, std::pair<unsigned, unsigned>>, bool> writesOver;

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

// From the first byte of `bytes` bytes seen through `view` to behind the last.
static int64_t extentOf(const BufferView &view, uint64_t bytes) {
  return view.pitch ? (view.rows - 1) * view.pitch + int64_t(bytes) / view.rows : int64_t(bytes);
}

// Whether two regions of one buffer have bytes in common.
static bool regionsOverlap(const BufferView &a, uint64_t aBytes, const BufferView &b,
                           uint64_t bBytes) {
  if (a.buffer != b.buffer || a.offset >= b.offset + extentOf(b, bBytes) ||
      b.offset >= a.offset + extentOf(a, aBytes))
    return false;
  if (a.pitch == 0 || a.pitch != b.pitch)
    return true;
  // Columns of one matrix: the runs of one begin between those of the other.
  bool aFirst = a.offset <= b.offset;
  const BufferView &low = aFirst ? a : b, &high = aFirst ? b : a;
  int64_t lowRun = int64_t(aFirst ? aBytes : bBytes) / low.rows;
  int64_t highRun = int64_t(aFirst ? bBytes : aBytes) / high.rows;
  int64_t column = (high.offset - low.offset) % a.pitch;
  return column < lowRun || column + highRun > a.pitch;
}

// Whether the runs of a view of `type` are whole rows of it: `rows` is a product of
// leading dimensions, the last not among them.
static bool runsAreRows(RankedTensorType type, const BufferView &view) {
  if (view.pitch == 0)
    return true;
  int64_t rows = 1;
  for (int64_t extent : type.getShape().drop_back(type.getRank() ? 1 : 0)) {
    if (rows == view.rows)
      return true;
    rows *= extent;
  }
  return rows == view.rows && type.getRank() > 0;
}

// A view of a dense buffer, once the buffer has become `region` of another, in which its
// `regionBytes` bytes may be spread. None when that is no equally spaced set of runs.
static std::optional<BufferView> compose(const BufferView &view, RankedTensorType type,
                                         const BufferView &region, uint64_t regionBytes) {
  if (region.pitch == 0)
    return BufferView{region.buffer, region.offset + view.offset, view.rows, view.pitch};
  int64_t run = int64_t(regionBytes) / region.rows, row = view.offset / run,
          column = view.offset % run, bytes = int64_t(byteSize(type));
  BufferView composed{region.buffer, region.offset + row * region.pitch + column, 1, 0};
  if (view.pitch == 0 && column + bytes <= run)
    return composed;
  if (view.pitch == 0 ? column != 0 || bytes % run != 0 : view.pitch != run)
    return std::nullopt;
  composed.rows = view.pitch ? view.rows : bytes / run;
  composed.pitch = region.pitch;
  if (!runsAreRows(type, composed))
    return std::nullopt;
  return composed;
}

// Whether merge(from, into) can express every view of the buffer.
bool BufferAssigner::mayMerge(unsigned from, BufferView into) const {
  if (into.pitch == 0)
    return true;
  uint64_t bytes = result->buffers[from].bytes;
  for (Value value : members[from])
    if (!compose(result->view(value), cast<RankedTensorType>(value.getType()), into, bytes))
      return false;
  for (const auto &[op, list] : result->copies)
    for (const Copy &copy : list)
      for (const BufferView &end : {copy.from, copy.to})
        if (end.buffer == from && !compose(end, copy.type, into, bytes))
          return false;
  return takesSpacedRuns(from);
}

// All values of buffer `from`, and the copies from and to it, move to `into`.
void BufferAssigner::merge(unsigned from, BufferView into) {
  uint64_t bytes = result->buffers[from].bytes;
  for (Value value : members[from]) {
    BufferView &view = result->views[value];
    view = *compose(view, cast<RankedTensorType>(value.getType()), into, bytes);
    members[into.buffer].push_back(value);
  }
  members[from].clear();
  for (auto &[op, list] : result->copies)
    for (Copy &copy : list)
      for (BufferView *end : {&copy.from, &copy.to})
        if (end->buffer == from)
          *end = *compose(*end, copy.type, into, bytes);
}

// Whether `value` is all of a buffer that is not state.
bool BufferAssigner::isWholeTemporary(Value value) const {
  BufferView view = result->view(value);
  const Buffer &buffer = result->buffers[view.buffer];
  return buffer.variable.empty() && view.offset == 0 && view.pitch == 0 &&
         buffer.bytes == byteSize(cast<RankedTensorType>(value.getType()));
}

// Whether `op` takes or makes `value` in spaced runs as well.
static bool acceptsSpacedRuns(Operation *op, Value value) {
  auto command = dyn_cast<CommandOpInterface>(op);
  return command && llvm::all_of(command.getCommandOperands(), [&](const CommandOperand &operand) {
           return operand.value != value || operand.mayBeSpaced;
         });
}

// What `op` adds to; null where it adds to nothing.
static Value accumulatedBy(Operation *op) {
  auto command = dyn_cast<CommandOpInterface>(op);
  return command ? command.getAccumulated() : Value();
}

bool BufferAssigner::readersTakeSpacedRuns(Value value) {
  for (OpOperand &use : value.getUses()) {
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp>(use.getOwner())
            ? !readersTakeSpacedRuns(use.getOwner()->getResult(0))
            : !isView(use.getOwner()) && !acceptsSpacedRuns(use.getOwner(), value))
      return false;
  }
  return true;
}

// Whether every op that makes or reads values of the buffer can do with spaced runs.
bool BufferAssigner::takesSpacedRuns(unsigned buffer) const {
  for (Value member : members[buffer]) {
    Operation *producer = member.getDefiningOp();
    if (producer && !isView(producer) && !acceptsSpacedRuns(producer, member))
      return false;
    for (Operation *user : member.getUsers())
      if (!isView(user) && !acceptsSpacedRuns(user, member))
        return false;
  }
  return true;
}

bool BufferAssigner::overlaps(Value value, BufferView region, uint64_t bytes) const {
  return regionsOverlap(result->view(value), byteSize(cast<RankedTensorType>(value.getType())),
                        region, bytes);
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

bool BufferAssigner::kernelMayWriteOver(OpResult value, unsigned input) const {
  auto launch = dyn_cast<kern::LaunchOp>(value.getOwner());
  if (!launch)
    return false;
  auto kernel = symbols.lookup<kern::KernelOp>(launch.getKernel());
  auto [known, isNew] = writesOver.try_emplace({kernel, {value.getResultNumber(), input}}, false);
  if (isNew)
    known->second = mayShareBuffer(kernel.getBody().front(), kernel.getHero(),
                                   value.getResultNumber(), input);
  return known->second;
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
      if (accumulatedBy(user) == sum)
        next = user->getResult(0);
    }
  }
  return false;
}

// Where a slice (tensor.extract_slice or insert_slice) of a tensor of type `whole`, seen
// through `view`, is: rows of it, or a rectangle of a matrix. None when it is neither.
template <typename SliceOp>
static std::optional<BufferView> viewOfSlice(SliceOp slice, RankedTensorType whole,
                                             BufferView view) {
  auto isOne = [](int64_t stride) { return stride == 1; };
  auto isZero = [](int64_t offset) { return offset == 0; };
  ArrayRef<int64_t> offsets = slice.getStaticOffsets(), sizes = slice.getStaticSizes();
  if (!llvm::all_of(slice.getStaticStrides(), isOne) ||
      (view.pitch && view.rows != whole.getDimSize(0)))
    return std::nullopt;
  int64_t width = whole.getElementTypeBitWidth() / 8;
  int64_t rowBytes = int64_t(byteSize(whole)) / whole.getDimSize(0);
  int64_t pitch = view.pitch ? view.pitch : rowBytes;
  view.offset += offsets[0] * pitch;
  if (llvm::all_of(offsets.drop_front(), isZero) &&
      sizes.drop_front() == whole.getShape().drop_front()) {
    if (view.pitch)
      view.rows = sizes[0];
    return view;
  }
  if (whole.getRank() != 2)
    return std::nullopt;
  view.offset += offsets[1] * width;
  view.rows = sizes[0];
  view.pitch = sizes[0] == 1 ? 0 : pitch;
  return view;
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
      std::optional<BufferView> view =
          viewOfSlice(slice, type, result->view(slice.getSource()));
      if (!view)
        return slice.emitOpError("is neither a range of rows nor a rectangle of a matrix");
      if (view->pitch && !readersTakeSpacedRuns(slice.getResult())) {
        auto part = cast<RankedTensorType>(slice.getType());
        BufferView dense{newBuffer(part), 0};
        result->copies[&op].push_back({*view, dense, part});
        view = dense;
      }
      setView(slice.getResult(), *view);
      continue;
    }
    if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
      auto type = cast<RankedTensorType>(insert.getDest().getType());
      BufferView view = result->view(insert.getDest());
      if (!viewOfSlice(insert, type, view))
        return insert.emitOpError("is neither a range of rows nor a rectangle of a matrix");
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
      BufferView view = result->view(op.getOperand(0));
      auto type = cast<RankedTensorType>(op.getResult(0).getType());
      if (!runsAreRows(type, view)) {
        BufferView dense{newBuffer(type), 0};
        result->copies[&op].push_back({view, dense, type});
        view = dense;
      }
      setView(op.getResult(0), view);
      continue;
    }
    if (Value accumulator = accumulatedBy(&op)) {
      auto type = cast<RankedTensorType>(accumulator.getType());
      BufferView view = result->view(accumulator);
      // The product must not read what it is added to.
      unsigned readers = unsigned(llvm::count_if(op.getOperands(), [&](Value operand) {
        return overlaps(operand, view, byteSize(type));
      }));
      if (!reuse || readers > 1 || view.pitch ||
          usedAfter(view, byteSize(type), positions[&op], &op) ||
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
      if (reuse && mayMakeInPlaceOf(made, place)) {
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
    // Reshapes of the part are members of its buffer: look at what made it.
    Value part = insert.getSource();
    while (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(part.getDefiningOp()))
      part = part.getDefiningOp()->getOperand(0);
    auto wholeType = cast<RankedTensorType>(insert.getDest().getType());
    auto partType = cast<RankedTensorType>(insert.getSource().getType());
    BufferView region = *viewOfSlice(insert, wholeType, result->view(insert.getResult()));
    Operation *producer = part.getDefiningOp();
    // With a copy of the whole first, the part can only follow it.
    bool inPlace = reuse && producer && !isView(producer) && isWholeTemporary(part) &&
                   result->view(part).buffer != region.buffer &&
                   result->copiesBefore(&op).empty() &&
                   mayMerge(result->view(part).buffer, region);
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
      result->copies[&op].push_back({result->view(insert.getSource()), region, partType});
  }
}

// Whether `buffer`, which only `op` makes, may become `region` of a buffer that `op` reads:
// nobody reads what is there later, no other result is there, and every result is written
// over bytes that the kernel has read by then.
bool BufferAssigner::mayTakeOver(Operation *op, unsigned buffer, BufferView region) const {
  uint64_t bytes = result->buffers[buffer].bytes;
  if (usedAfter(region, bytes, positions.lookup(op), nullptr) || !mayMerge(buffer, region))
    return false;
  for (OpResult value : op->getResults()) {
    if (result->view(value).buffer != buffer) {
      if (overlaps(value, region, bytes))
        return false; // another result went there, perhaps one that nobody reads
      continue;
    }
    auto type = cast<RankedTensorType>(value.getType());
    BufferView place = *compose(result->view(value), type, region, bytes);
    for (OpOperand &operand : op->getOpOperands()) {
      BufferView read = result->view(operand.get());
      auto readType = cast<RankedTensorType>(operand.get().getType());
      if (regionsOverlap(place, byteSize(type), read, byteSize(readType)) &&
          (place != read || byteSize(type) != byteSize(readType) ||
           !kernelMayWriteOver(value, operand.getOperandNumber())))
        return false;
    }
  }
  return true;
}

// The results of a kernel take over inputs that nobody reads afterwards: an input of the
// same size, columns of one, or, where several results make one buffer, a buffer that
// several inputs are parts of.
void BufferAssigner::shareDyingInputs() {
  for (Operation &op : function.getBody().front()) {
    auto launch = dyn_cast<kern::LaunchOp>(op);
    if (!launch)
      continue;
    for (OpResult value : launch->getResults()) {
      unsigned buffer = result->view(value).buffer;
      if (!result->buffers[buffer].variable.empty() || members[buffer].empty())
        continue;
      bool madeHere = llvm::all_of(members[buffer], [&](Value member) {
        Operation *producer = member.getDefiningOp();
        return producer == &op || (producer && isView(producer));
      });
      bool copiedTo = llvm::any_of(result->copies, [&](const auto &entry) {
        return llvm::any_of(entry.second,
                            [&](const Copy &copy) { return copy.to.buffer == buffer; });
      });
      if (!madeHere || copiedTo)
        continue;
      uint64_t bytes = result->buffers[buffer].bytes;
      for (Value operand : launch.getInputs()) {
        BufferView part = result->view(operand), whole{part.buffer, 0};
        if (part.buffer == buffer || !result->buffers[part.buffer].variable.empty())
          continue;
        if (byteSize(cast<RankedTensorType>(operand.getType())) == bytes &&
            mayTakeOver(&op, buffer, part)) {
          merge(buffer, part);
          break;
        }
        if (result->buffers[part.buffer].bytes == bytes && mayTakeOver(&op, buffer, whole)) {
          merge(buffer, whole);
          break;
        }
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
    // Scratch lives during the command.
    if (RankedTensorType type = target.scratchOf(&op)) {
      unsigned id = newBuffer(type);
      result->buffers[id].category = Category::LibraryWorkspace;
      result->workspaces[&op] = {id, type};
      touch(id);
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
  if (reuse)
    shareDyingInputs();
  computeLifetimes();
  return success();
}

FailureOr<std::unique_ptr<BufferAssignment>>
BufferAssignment::compute(func::FuncOp function, const SymbolTable &symbols,
                          const Target &target, bool reuse) {
  BufferAssigner assigner(function, symbols, target, reuse);
  if (failed(assigner.run()))
    return failure();
  return std::move(assigner.result);
}
