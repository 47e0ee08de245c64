// plan-assign-buffers: decides which values of a function share bytes, and computes the live range
// of each buffer (BufferAssignment.h). plan-pack-arenas chooses the offsets.
#include "passes/buffers/BufferAssignment.h"
#include "passes/buffers/Passes.h"
#include "passes/buffers/StatePlaces.h"

#include "compiler/kernels/Hero.h"
#include "compiler/kernels/Target.h"
#include "dialects/dist/Dist.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/kern/Kern.h"
#include "dialects/lm/TensorTypes.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;

namespace lmc {
#define GEN_PASS_DEF_ASSIGNBUFFERSPASS
#include "passes/buffers/Passes.h.inc"
} // namespace lmc

namespace {

bool acceptsSpacedRuns(Operation *op, Value value) {
  auto command = dyn_cast<CommandOpInterface>(op);
  return command && llvm::all_of(command.getCommandOperands(), [&](const CommandOperand &operand) {
           return operand.value != value || operand.mayBeSpaced;
         });
}

// Returns true if an op of the backward pass reads `value`, directly or through views.
bool isReadByBackward(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<StepOpInterface>(user) ? isBackward(user)
                                      : llvm::any_of(user->getResults(), isReadByBackward);
  });
}

// Checks that no function uses both a storage and its members. They share bytes.
LogicalResult checkStorageUse(func::FuncOp function, const SymbolTable &symbols) {
  llvm::StringMap<bool> byMember; // per storage: used through members (true) or as a whole (false)
  for (Operation &op : function.getBody().front()) {
    auto load = dyn_cast<lm::LoadOp>(op);
    auto store = dyn_cast<lm::StoreOp>(op);
    if (!load && !store)
      continue;
    StringRef name = load ? load.getVariable() : store.getVariable();
    auto variable = symbols.lookup<lm::VariableOp>(name);
    bool member = variable.getStorage().has_value();
    if (!member && !variable.getAnonymous())
      continue;
    auto [it, inserted] = byMember.try_emplace(member ? *variable.getStorage() : name, member);
    if (it->second != member)
      return op.emitOpError("uses ")
             << name << " where the function uses "
             << (member ? "its storage " : "a member of it, of storage ") << it->first() << " too";
  }
  return success();
}

class BufferAssigner {
public:
  // Facts about kernels. All functions of a module share them.
  struct Kernels {
    llvm::DenseMap<Operation *, std::optional<RegionInfo>> infos; // nullopt: no analysis
    // True if a kernel may write a result over an input. Key: kernel, result number, input number.
    llvm::DenseMap<std::pair<Operation *, std::pair<unsigned, unsigned>>, bool> writesOver;
  };

  BufferAssigner(func::FuncOp function, const SymbolTable &symbols, const Target &target,
                 uint64_t gemmWorkspace, bool reuse, Kernels &kernels)
      : function(function), symbols(symbols), target(target), gemmWorkspace(gemmWorkspace),
        reuse(reuse), kernels(kernels) {}

  FailureOr<BufferAssignment> run() {
    if (failed(assignViews()))
      return failure();
    placeStoresAndParts();
    if (reuse)
      shareDyingInputs();
    computeLifetimes();
    return std::move(result);
  }

private:
  using Copy = BufferAssignment::Copy;

  // Gives views to the loads of variables first. All readers of a variable are then known before
  // another value may overwrite the variable.
  LogicalResult assignViews() {
    if (function.getNumArguments() || function.getNumResults())
      return function.emitError(
          "has arguments or results; a function of a plan only has variables");
    Block &body = function.getBody().front();
    int64_t position = 0;
    for (Operation &op : body)
      positions[&op] = position++;
    if (reuse)
      statePlaces = findStatePlaces(function, symbols);
    for (Operation &op : body) {
      if (auto load = dyn_cast<lm::LoadOp>(op))
        setView(load.getResult(), viewOfVariable(load.getVariable()));
      if (auto store = dyn_cast<lm::StoreOp>(op))
        viewOfVariable(store.getVariable());
    }

    for (Operation &op : body) {
      if (isa<lm::LoadOp>(op))
        continue;
      if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
        auto type = tensorTypeOf(slice.getSource());
        std::optional<BufferView> view = viewOfSlice(slice, type, result.view(slice.getSource()));
        if (!view)
          return slice.emitOpError("is neither a range of rows nor a rectangle of a matrix");
        if (view->pitch && !readersTakeSpacedRuns(slice.getResult()))
          view = copyBefore(&op, *view, slice.getType());
        setView(slice.getResult(), *view);
        continue;
      }
      if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
        auto type = tensorTypeOf(insert.getDest());
        auto place = statePlaces.wholes.find(insert.getResult());
        if (place != statePlaces.wholes.end()) {
          setView(insert.getResult(), viewOf(place->second));
          continue;
        }
        BufferView view = result.view(insert.getDest());
        if (!viewOfSlice(insert, type, view))
          return insert.emitOpError("is neither a range of rows nor a rectangle of a matrix");
        // If the destination is read later or lies in a variable, the insertion writes to a copy.
        bool readLater = llvm::any_of(insert.getDest().getUsers(), [&](Operation *user) {
          return positions[user] > positions[&op];
        });
        if (readLater || !result.buffers[view.buffer].variable.empty())
          view = insert.getDest().getDefiningOp<tensor::EmptyOp>() // has no contents
                     ? BufferView{newBuffer(type), 0}
                     : copyBefore(&op, view, type);
        setView(insert.getResult(), view);
        continue;
      }
      if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op)) {
        BufferView view = result.view(op.getOperand(0));
        auto type = cast<RankedTensorType>(op.getResult(0).getType());
        if (!runsAreRows(type, view))
          view = copyBefore(&op, view, type);
        setView(op.getResult(0), view);
        continue;
      }
      if (Value accumulator = accumulatedBy(&op)) {
        auto type = tensorTypeOf(accumulator);
        BufferView view = result.view(accumulator);
        // The op may add in place only if its other operands do not overlap the accumulator.
        unsigned readers = unsigned(llvm::count_if(op.getOperands(), [&](Value operand) {
          return overlaps(operand, view, byteSize(type));
        }));
        // A copy of the accumulator would be incomplete while a collective still writes it.
        if (!dist::isUnfinished(accumulator) &&
            (!reuse || readers > 1 || view.pitch ||
             usedAfter(view, byteSize(type), positions[&op], &op) ||
             !mayOverwrite(view, op.getResult(0))))
          view = copyBefore(&op, view, type);
        setView(op.getResult(0), view);
        for (Value value : op.getResults().drop_front())
          setView(value, {newBuffer(tensorTypeOf(value)), 0});
        continue;
      }
      for (Value value : op.getResults()) {
        auto place = statePlaces.wholes.find(value);
        setView(value, place == statePlaces.wholes.end()
                           ? BufferView{newBuffer(tensorTypeOf(value)), 0}
                           : viewOf(place->second));
      }
    }
    return success();
  }

  void placeStoresAndParts() {
    Block &body = function.getBody().front();
    for (Operation &op : body) {
      if (auto store = dyn_cast<lm::StoreOp>(op)) {
        const BufferView place = viewOfVariable(store.getVariable());
        Value value = store.getValue();
        BufferView view = result.view(value);
        if (view == place)
          continue;
        Value made = behindReshapes(value);
        if (reuse && mayMakeInPlaceOf(made, place.buffer)) {
          merge(view.buffer, place);
          continue;
        }
        // Loads read old state, so this store becomes a copy at the function's end. A value that
        // lies in another variable is first copied here, because that variable may change earlier.
        auto type = tensorTypeOf(value);
        bool madeHere = made.getDefiningOp() && !isView(made.getDefiningOp());
        if (!result.buffers[view.buffer].variable.empty() && !madeHere)
          view = copyBefore(&op, view, type);
        result.copies[body.getTerminator()].push_back({view, place, type});
        continue;
      }
      auto insert = dyn_cast<tensor::InsertSliceOp>(op);
      if (!insert)
        continue;
      Value part = behindReshapes(insert.getSource());
      auto wholeType = tensorTypeOf(insert.getDest());
      auto partType = tensorTypeOf(insert.getSource());
      BufferView region = *viewOfSlice(insert, wholeType, result.view(insert.getResult()));
      if (result.view(insert.getSource()) == region)
        continue;
      Operation *producer = part.getDefiningOp();
      // If the destination is copied just before `op`, the copy overwrites an in-place part.
      bool inPlace = reuse && producer && !isView(producer) && isWholeTemporary(part) &&
                     result.view(part).buffer != region.buffer &&
                     result.copiesBefore(&op).empty() && mayMerge(result.view(part).buffer, region);
      // If a copy for an earlier insertion comes after `producer`, it overwrites an in-place part.
      for (auto earlier = insert.getDest().getDefiningOp<tensor::InsertSliceOp>();
           inPlace && earlier; earlier = earlier.getDest().getDefiningOp<tensor::InsertSliceOp>())
        for (const Copy &copy : result.copiesBefore(earlier))
          inPlace &= copy.to.buffer != region.buffer || copy.type != wholeType ||
                     positions.lookup(earlier) < positions.lookup(producer);
      // Until the insertion, no op may write the region, or read it after the part's first writer
      // begins.
      if (inPlace) {
        int64_t made = positions.lookup(firstWriter(part)), inserted = positions.lookup(&op);
        for (Value member : members[region.buffer]) {
          if (!overlaps(member, region, byteSize(partType)))
            continue;
          Operation *definition = member.getDefiningOp();
          bool writes =
              definition && !isView(definition) && positions.lookup(definition) <= inserted;
          bool reads = llvm::any_of(member.getUses(), [&](OpOperand &use) {
            Operation *user = use.getOwner();
            int64_t at = positions.lookup(user);
            return !isView(user) && at >= made && at <= inserted;
          });
          inPlace &= !writes && !reads;
          // If a later op writes to the region, neither that op nor one after it may read the part.
          if (definition && !isView(definition) && positions.lookup(definition) > inserted)
            inPlace &= !usedAfter(result.view(part), byteSize(partType),
                                  positions.lookup(definition) - 1, nullptr);
        }
      }
      if (inPlace)
        merge(result.view(part).buffer, region);
      else
        result.copies[&op].push_back({result.view(insert.getSource()), region, partType});
    }
  }

  // Lets kernels write results over inputs that no later op reads: one result over an input of the
  // same size, or a buffer of several results over a buffer that contains several inputs.
  void shareDyingInputs() {
    for (Operation &op : function.getBody().front()) {
      auto launch = dyn_cast<kern::LaunchOp>(op);
      if (!launch)
        continue;
      for (OpResult value : launch->getResults()) {
        unsigned buffer = result.view(value).buffer;
        if (!result.buffers[buffer].variable.empty() || members[buffer].empty())
          continue;
        bool madeHere = llvm::all_of(members[buffer], [&](Value member) {
          Operation *producer = member.getDefiningOp();
          return producer == &op || (producer && isView(producer));
        });
        bool copiedTo = llvm::any_of(result.copies, [&](const auto &entry) {
          return llvm::any_of(entry.second,
                              [&](const Copy &copy) { return copy.to.buffer == buffer; });
        });
        if (!madeHere || copiedTo)
          continue;
        uint64_t bytes = result.buffers[buffer].bytes;
        for (Value operand : launch.getInputs()) {
          BufferView part = result.view(operand), whole{part.buffer, 0};
          if (part.buffer == buffer || !result.buffers[part.buffer].variable.empty())
            continue;
          if (byteSize(tensorTypeOf(operand)) == bytes && mayTakeOver(&op, buffer, part)) {
            merge(buffer, part);
            break;
          }
          if (result.buffers[part.buffer].bytes == bytes && mayTakeOver(&op, buffer, whole)) {
            merge(buffer, whole);
            break;
          }
        }
      }
    }
  }

  void computeLifetimes() {
    for (Operation &op : function.getBody().front()) {
      int64_t position = positions[&op];
      auto touch = [&](unsigned id) {
        Buffer &buffer = result.buffers[id];
        buffer.first = std::min(buffer.first, position);
        buffer.last = std::max(buffer.last, position);
      };
      for (const Copy &copy : result.copiesBefore(&op)) {
        touch(copy.from.buffer);
        touch(copy.to.buffer);
      }
      if (isView(&op) || isa<func::ReturnOp>(op))
        continue;
      for (Value operand : op.getOperands())
        touch(result.view(operand).buffer);
      for (Value value : op.getResults())
        touch(result.view(value).buffer);
      if (RankedTensorType type = target.scratchOf(&op, gemmWorkspace)) {
        unsigned id = newBuffer(type);
        result.buffers[id].category = Category::LibraryWorkspace;
        result.scratch[&op] = {id, type};
        touch(id);
      }
    }
    for (unsigned id = 0; id < members.size(); ++id)
      for (Value member : members[id]) {
        auto step = member.getDefiningOp<StepOpInterface>();
        if (step && !step.getBackward() && isReadByBackward(member) && !isMadeOfWeights(member))
          result.buffers[id].category = Category::Activations;
      }
  }

  // Returns true if `value` is computed from weights alone: their 8-bit codes, or weights that
  // ranks gathered.
  bool isMadeOfWeights(Value value) {
    if (auto known = madeOfWeights.find(value); known != madeOfWeights.end())
      return known->second;
    Operation *op = value.getDefiningOp();
    bool isMade = op != nullptr;
    if (auto load = dyn_cast_or_null<lm::LoadOp>(op)) {
      const lm::VariableKind kind = symbols.lookup<lm::VariableOp>(load.getVariable()).getKind();
      isMade = kind == lm::VariableKind::Parameter || kind == lm::VariableKind::ComputeCopy;
    } else if (op) {
      isMade = llvm::all_of(op->getOperands(), [&](Value each) { return isMadeOfWeights(each); });
    }
    return madeOfWeights[value] = isMade;
  }

  unsigned newBuffer(RankedTensorType type) {
    Buffer buffer;
    buffer.bytes = byteSize(type);
    result.buffers.push_back(buffer);
    members.emplace_back();
    return unsigned(result.buffers.size() - 1);
  }

  // Records that `from` is copied to a new buffer before the command of `op`, and returns the copy.
  BufferView copyBefore(Operation *op, BufferView from, RankedTensorType type) {
    BufferView to{newBuffer(type), 0};
    result.copies[op].push_back({from, to, type});
    return to;
  }

  BufferView viewOf(const StatePlace &place) {
    auto [it, inserted] = variableBuffers.try_emplace(place.variable, 0);
    if (inserted) {
      auto variable = symbols.lookup<lm::VariableOp>(place.variable);
      it->second = newBuffer(tensorTypeOf(variable));
      result.buffers[it->second].variable = place.variable;
    }
    return {it->second, place.offset};
  }

  BufferView viewOfVariable(StringRef name) {
    auto known = statePlaces.variables.find(name);
    return viewOf(known == statePlaces.variables.end() ? StatePlace{name.str(), 0} : known->second);
  }

  void setView(Value value, BufferView view) {
    result.views[value] = view;
    members[view.buffer].push_back(value);
  }

  // Returns true if each view of buffer `from` would be one run or equally spaced runs in `into`.
  bool mayMerge(unsigned from, BufferView into) const {
    if (into.pitch == 0)
      return true;
    uint64_t bytes = result.buffers[from].bytes;
    for (Value value : members[from])
      if (!compose(result.view(value), tensorTypeOf(value), into, bytes))
        return false;
    for (const auto &[op, list] : result.copies)
      for (const Copy &copy : list)
        for (const BufferView &end : {copy.from, copy.to})
          if (end.buffer == from && !compose(end, copy.type, into, bytes))
            return false;
    return takesSpacedRuns(from);
  }

  // Moves buffer `from`, with its values and its copies, to the region `into` of another buffer.
  void merge(unsigned from, BufferView into) {
    uint64_t bytes = result.buffers[from].bytes;
    for (Value value : members[from]) {
      BufferView &view = result.views[value];
      view = *compose(view, tensorTypeOf(value), into, bytes);
      members[into.buffer].push_back(value);
    }
    members[from].clear();
    for (auto &[op, list] : result.copies)
      for (Copy &copy : list)
        for (BufferView *end : {&copy.from, &copy.to})
          if (end->buffer == from)
            *end = *compose(*end, copy.type, into, bytes);
  }

  // Returns true if `value` fills its whole buffer, and the buffer is not state.
  bool isWholeTemporary(Value value) const {
    BufferView view = result.view(value);
    const Buffer &buffer = result.buffers[view.buffer];
    return buffer.variable.empty() && view.offset == 0 && view.pitch == 0 &&
           buffer.bytes == byteSize(tensorTypeOf(value));
  }

  bool takesSpacedRuns(unsigned buffer) const {
    return llvm::all_of(members[buffer], [](Value member) {
      auto accepts = [&](Operation *op) { return isView(op) || acceptsSpacedRuns(op, member); };
      Operation *producer = member.getDefiningOp();
      return (!producer || accepts(producer)) && llvm::all_of(member.getUsers(), accepts);
    });
  }

  static bool readersTakeSpacedRuns(Value value) {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      return isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp>(user)
                 ? readersTakeSpacedRuns(user->getResult(0))
                 : isView(user) || acceptsSpacedRuns(user, value);
    });
  }

  bool overlaps(Value value, BufferView region, uint64_t bytes) const {
    return regionsOverlap(result.view(value), byteSize(tensorTypeOf(value)), region, bytes);
  }

  // Returns true if `buffer`, which only `op` writes, may become `region` of a buffer that `op`
  // reads. No later op may use the region, and no other result may overlap it. The kernel must read
  // each byte before it writes the byte.
  bool mayTakeOver(Operation *op, unsigned buffer, BufferView region) const {
    uint64_t bytes = result.buffers[buffer].bytes;
    if (usedAfter(region, bytes, positions.lookup(op), nullptr) || !mayMerge(buffer, region))
      return false;
    for (OpResult value : op->getResults()) {
      if (result.view(value).buffer != buffer) {
        if (overlaps(value, region, bytes))
          return false; // `op` writes `value` even if no op reads it
        continue;
      }
      auto type = tensorTypeOf(value);
      BufferView place = *compose(result.view(value), type, region, bytes);
      for (OpOperand &operand : op->getOpOperands()) {
        BufferView read = result.view(operand.get());
        auto readType = tensorTypeOf(operand.get());
        if (regionsOverlap(place, byteSize(type), read, byteSize(readType)) &&
            (place != read || byteSize(type) != byteSize(readType) ||
             !kernelMayWriteOver(value, operand.getOperandNumber())))
          return false;
      }
    }
    return true;
  }

  // Returns true if an op after `position` reads the region. Ignores results of the op `except`.
  bool usedAfter(BufferView region, uint64_t bytes, int64_t position, Operation *except) const {
    return llvm::any_of(members[region.buffer], [&](Value member) {
      return overlaps(member, region, bytes) && member.getDefiningOp() != except &&
             lastRead(member) > position;
    });
  }

  // Returns the first op that writes the buffer of `value`. If `value` is the last sum of a chain
  // of accumulations, the chain's first op writes the buffer.
  Operation *firstWriter(Value value) const {
    Operation *first = value.getDefiningOp();
    for (Value member : members[result.view(value).buffer])
      if (Operation *op = member.getDefiningOp();
          op && !isView(op) && positions.lookup(op) < positions.lookup(first))
        first = op;
    return first;
  }

  // Returns true if `value`, which is stored to a variable, may be computed in the variable's
  // bytes. No later op may read the old contents, and the op that computes `value` must be able to
  // overwrite them.
  bool mayMakeInPlaceOf(Value value, unsigned variableBuffer) {
    Operation *producer = value.getDefiningOp();
    if (!producer || isView(producer) || !isWholeTemporary(value))
      return false;
    producer = firstWriter(value);
    const int64_t made = positions.lookup(producer);
    for (Value member : members[variableBuffer]) {
      if (!isa_and_nonnull<lm::LoadOp, tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                           tensor::CollapseShapeOp>(member.getDefiningOp()))
        return false; // another value is already computed in these bytes
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

  bool kernelMayWriteOver(OpResult value, unsigned input) const {
    auto launch = dyn_cast<kern::LaunchOp>(value.getOwner());
    if (!launch)
      return false;
    auto kernel = symbols.lookup<kern::KernelOp>(launch.getKernel());
    auto [known, isNew] =
        kernels.writesOver.try_emplace({kernel, {value.getResultNumber(), input}}, false);
    if (!isNew)
      return known->second;
    Block &body = kernel.getBody().front();
    auto [info, isFirst] = kernels.infos.try_emplace(kernel);
    if (isFirst) {
      if (llvm::Expected<RegionInfo> analyzed = analyzeRegion(kernel.getHero(), body))
        info->second = std::move(*analyzed);
      else
        llvm::consumeError(analyzed.takeError());
    }
    return known->second =
               info->second && mayShareBuffer(*info->second, body, value.getResultNumber(), input);
  }

  // Returns true if `sum` may be computed in the bytes of `view`. If these bytes belong to a
  // variable, `sum`, or a larger tensor that contains `sum`, must be stored to them.
  bool mayOverwrite(BufferView view, Value sum) const {
    StringRef variable = result.buffers[view.buffer].variable;
    if (variable.empty() || isAt(statePlaces.wholes, sum, view))
      return true;
    for (Value next = sum; next;) {
      sum = next;
      next = Value();
      if (isAt(statePlaces.parts, sum, view))
        return true;
      for (Operation *user : sum.getUsers()) {
        if (auto store = dyn_cast<lm::StoreOp>(user); store && store.getVariable() == variable)
          return true;
        if (accumulatedBy(user) == sum)
          next = user->getResult(0);
      }
    }
    return false;
  }

  bool isAt(const llvm::DenseMap<Value, StatePlace> &known, Value value, BufferView view) const {
    auto place = known.find(value);
    return place != known.end() && place->second.variable == result.buffers[view.buffer].variable &&
           view == BufferView{view.buffer, place->second.offset};
  }

  static bool isView(Operation *op) {
    return isa<tensor::EmptyOp, tensor::ExtractSliceOp, tensor::InsertSliceOp,
               tensor::ExpandShapeOp, tensor::CollapseShapeOp, lm::LoadOp, lm::StoreOp>(op);
  }

  // Returns the position of the last op that reads bytes of `value`; -1 if there is none. Views
  // read no bytes, except that an insertion reads what it inserts, and a store what it copies.
  int64_t lastRead(Value value) const {
    int64_t last = -1;
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (isa<lm::StoreOp>(user)) // the value may be copied at the function's end
        last = std::max(last, positions.lookup(user->getBlock()->getTerminator()));
      else if (!isView(user) || (isa<tensor::InsertSliceOp>(user) && use.getOperandNumber() == 0))
        last = std::max(last, positions.lookup(user));
    }
    return last;
  }

  func::FuncOp function;
  const SymbolTable &symbols;
  const Target &target;
  const uint64_t gemmWorkspace; // maximum scratch memory of a matrix product, in bytes
  const bool reuse;
  Kernels &kernels;
  BufferAssignment result;
  llvm::DenseMap<Operation *, int64_t> positions;
  std::vector<SmallVector<Value>> members; // the values in each buffer
  llvm::DenseMap<Value, bool> madeOfWeights;
  StatePlaces statePlaces;
  llvm::StringMap<unsigned> variableBuffers; // buffer of each variable or storage
};

struct AssignBuffersPass : lmc::impl::AssignBuffersPassBase<AssignBuffersPass> {
  using AssignBuffersPassBase::AssignBuffersPassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    const SymbolTable symbols(module);
    const Target *known = findTarget(target);
    if (!known) {
      auto names = llvm::map_range(targets(), [](const Target *each) { return each->name(); });
      module.emitError("there is no target '") << target << "': " << llvm::join(names, " or ");
      return signalPassFailure();
    }
    auto &assignments = getAnalysis<BufferAssignments>();
    assignments.functions.clear();
    BufferAssigner::Kernels kernels;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal()) {
        function.emitError("has no body; a plan's functions are whole");
        return signalPassFailure();
      }
      if (failed(checkStorageUse(function, symbols)))
        return signalPassFailure();
      FailureOr<BufferAssignment> assignment =
          BufferAssigner(function, symbols, *known, gemmWorkspace, reuse, kernels).run();
      if (failed(assignment))
        return signalPassFailure();
      if (attach)
        assignment->attachTo(function);
      assignments.functions[function] = std::move(*assignment);
    }
    markAnalysesPreserved<BufferAssignments>();
  }
};
} // namespace
