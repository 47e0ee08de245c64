#include "passes/buffers/StatePlaces.h"

#include "dialects/interfaces/Command.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace lmc;

Value lmc::behindReshapes(Value value) {
  while (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

Value lmc::accumulatedBy(Operation *op) {
  auto command = dyn_cast<CommandOpInterface>(op);
  return command ? command.getAccumulated() : Value();
}

namespace {

// A part of a whole (see StatePlaces.h), which an op stores to `variable`.
struct StoredPart {
  int64_t first; // its first byte in the whole
  lm::VariableOp variable;
};

int64_t tensorBytes(Type type) { return int64_t(byteSize(cast<RankedTensorType>(type))); }

int64_t widthOf(Type type) { return getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8; }

// Returns the place of `variable` in its storage, or the variable itself if it is in no storage.
StatePlace placeOf(lm::VariableOp variable) {
  if (std::optional<StringRef> storage = variable.getStorage())
    return {storage->str(), int64_t(*variable.getStorageOffset()) * widthOf(variable.getType())};
  return {variable.getSymName().str(), 0};
}

class PlaceFinder {
public:
  PlaceFinder(func::FuncOp function, const SymbolTable &symbols)
      : body(function.getBody().front()), symbols(symbols) {}

  StatePlaces run() {
    llvm::MapVector<Value, SmallVector<StoredPart>> wholes;
    for (Operation &op : body) {
      if (auto load = dyn_cast<lm::LoadOp>(op))
        loads[load.getVariable()].push_back(load);
      auto store = dyn_cast<lm::StoreOp>(op);
      if (!store)
        continue;
      ++stores[store.getVariable()];
      Value value = behindReshapes(store.getValue());
      int64_t first = 0;
      if (auto slice = value.getDefiningOp<tensor::ExtractSliceOp>()) {
        if (slice.getSourceType().getRank() != 1)
          continue;
        first = slice.getStaticOffset(0) * widthOf(slice.getType());
        value = behindReshapes(slice.getSource());
      }
      wholes[value].push_back({first, symbols.lookup<lm::VariableOp>(store.getVariable())});
    }
    for (auto &[whole, parts] : wholes)
      place(whole, parts);
    return std::move(places);
  }

private:
  // Returns where the variables of the parts lie. Returns nullopt unless they lie in one storage in
  // the order of the parts, without gaps, and the parts cover the whole.
  std::optional<StatePlace> placeOf(Value whole, MutableArrayRef<StoredPart> parts) const {
    llvm::sort(parts, [](const StoredPart &x, const StoredPart &y) { return x.first < y.first; });
    const StatePlace start = ::placeOf(parts.front().variable);
    int64_t end = 0;
    for (StoredPart &part : parts) {
      const StatePlace place = ::placeOf(part.variable);
      if (part.first != end || place.variable != start.variable ||
          place.offset != start.offset + end || stores.lookup(part.variable.getSymName()) != 1)
        return std::nullopt;
      end += tensorBytes(part.variable.getType());
    }
    return end == tensorBytes(whole.getType()) ? std::optional(start) : std::nullopt;
  }

  // Returns true if all reads of `value`, directly or through views, come before `op`.
  bool readsEndBefore(Value value, Operation *op) const {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      if (isa<tensor::TensorDialect>(user->getDialect()))
        return readsEndBefore(user->getResult(0), op);
      return user->isBeforeInBlock(op);
    });
  }

  void place(Value whole, MutableArrayRef<StoredPart> parts) {
    const std::optional<StatePlace> start = placeOf(whole, parts);
    if (!start)
      return;
    // `made` holds the whole and the earlier values from which it is computed in the same bytes.
    SmallVector<Value> made{whole};
    SmallVector<tensor::InsertSliceOp> inserts;
    Operation *first = whole.getDefiningOp();
    for (Value before; first; first = before.getDefiningOp()) {
      if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(first)) {
        before = first->getOperand(0);
      } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(first)) {
        if (insert.getDestType().getRank() != 1)
          return;
        inserts.push_back(insert);
        before = insert.getDest();
        if (before.getDefiningOp<tensor::EmptyOp>()) // several wholes may share one tensor.empty
          break;
        if (!before.hasOneUse())
          return;
      } else {
        before = accumulatedBy(first);
        if (!before)
          break;
      }
      made.push_back(before);
    }
    // Insertions into a vector, or a command without insertions, must compute the whole. If a
    // command computes a whole with only one part, AssignBuffers.cpp finds its place by itself.
    if (!first || (isa<CommandOpInterface>(first) ? !inserts.empty() || parts.size() == 1
                                                  : !isa<tensor::InsertSliceOp>(first)))
      return;
    for (StoredPart &part : parts)
      for (lm::LoadOp load : loads.lookup(part.variable.getSymName()))
        if (!readsEndBefore(load, first))
          return;
    for (Value value : made)
      places.wholes[value] = *start;
    for (tensor::InsertSliceOp insert : inserts)
      places.parts[behindReshapes(insert.getSource())] = {
          start->variable,
          start->offset + insert.getStaticOffset(0) * widthOf(insert.getDestType())};
    for (StoredPart &part : parts)
      places.variables[part.variable.getSymName()] = ::placeOf(part.variable);
  }

  Block &body;
  const SymbolTable &symbols;
  llvm::StringMap<SmallVector<lm::LoadOp, 1>> loads; // of each variable
  llvm::StringMap<unsigned> stores;                  // number of stores to each variable
  StatePlaces places;
};

} // namespace

StatePlaces lmc::findStatePlaces(func::FuncOp function, const SymbolTable &symbols) {
  return PlaceFinder(function, symbols).run();
}
