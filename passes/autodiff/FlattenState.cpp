// lm-flatten-state: the state of parameters that AdamW treats alike becomes one matrix.
//
//   norm = lm.global_norm(w.grad, b.grad)        norm = lm.global_norm(flat.grad)
//   lm.adamw(w, w.grad, ...)               =>    lm.adamw(flat, flat.grad, ...)
//   lm.adamw(b, b.grad, ...)
//
// so that the optimizer is one pass over memory in a handful of kernels, however many
// parameters there are. The parameters lie in the matrices under their own names.
//
// Moments in 8 bits have a scale for each block of elements. Such parameters are whole blocks,
// and so lie at multiples of a block: a block is of one parameter, which can be told by its
// name in a checkpoint, and has the same elements as without this pass.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_FLATTENSTATEPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// A row is a work item of the kernels: enough for a thread block, little enough for a cache.
static constexpr int64_t kColumns = 4096;
// Elements between the beginnings of members: 256 bytes of bf16, what wide loads like.
static constexpr int64_t kAlignment = 128;

namespace {

// What an AdamW step keeps of a parameter: read through `operand` and written as `result`,
// null where it is only written or only read.
struct State {
  StringRef suffix;
  Value operand, result;
};

// What decides whether two parameters can go through one AdamW: its scalars, and the
// element types of what it reads and writes.
struct GroupKey {
  SmallVector<Value> scalars;
  SmallVector<Type> elements;
  bool operator==(const GroupKey &other) const = default;
};

class StateFlattener {
public:
  StateFlattener(ModuleOp module, func::FuncOp optimizer)
      : symbols(module), optimizer(optimizer), b(module.getContext()) {}

  unsigned run();

private:
  using Group = SmallVector<Operation *>;

  lm::VariableOp variableOf(Value loaded);
  lm::VariableOp variableStored(Value value);
  lm::VariableOp variableOf(const State &state) {
    return state.operand ? variableOf(state.operand) : variableStored(state.result);
  }
  bool mayFlatten(Operation *op);
  bool normsTakeAllOrNone(const Group &group);
  lm::VariableOp makeStorage(StringRef name, ArrayRef<lm::VariableOp> parameters,
                             ArrayRef<lm::VariableOp> members);
  SmallVector<lm::VariableOp> makeStorages(StringRef name, const Group &group);
  void flatten(unsigned index, Group &group);
  void takeNormsOf(const Group &group, Operation *flat);
  void erase(Operation *op);
  void replaceParts(Operation *user, ArrayRef<Value> old, Value whole);

  SymbolTable symbols;
  func::FuncOp optimizer;
  OpBuilder b;
};

} // namespace

static bool isAdamW(Operation *op) { return isa<lm::AdamWOp, lm::AdamW8bitOp>(op); }

// The parameter first.
static SmallVector<State> statesOf(Operation *op) {
  SmallVector<State> states;
  llvm::TypeSwitch<Operation *>(op).Case<lm::AdamWOp, lm::AdamW8bitOp>([&](auto adamw) {
    states = {{"", adamw.getParameter(), adamw.getNewParameter()},
              {".grad", adamw.getGradient(), Value()},
              {".moment1", adamw.getMoment1(), adamw.getNewMoment1()},
              {".moment2", adamw.getMoment2(), adamw.getNewMoment2()}};
    if (Value copy = adamw.getCompute())
      states.push_back({".compute", Value(), copy});
  });
  if (auto coded = dyn_cast<lm::AdamW8bitOp>(op)) {
    states.push_back({".moment1_scale", coded.getMoment1Scale(), coded.getNewMoment1Scale()});
    states.push_back({".moment2_scale", coded.getMoment2Scale(), coded.getNewMoment2Scale()});
  }
  return states;
}

// What norms are taken of: the gradient, and the sums of squares.
static SmallVector<Value> partsOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, SmallVector<Value>>(op)
      .Case<lm::AdamWOp, lm::AdamW8bitOp>([](auto adamw) {
        return SmallVector<Value>{adamw.getGradient(), adamw.getUpdateSq(), adamw.getParamSq()};
      });
}

static int64_t elementsOf(lm::VariableOp variable) {
  return cast<RankedTensorType>(variable.getType()).getNumElements();
}

lm::VariableOp StateFlattener::variableOf(Value loaded) {
  auto load = loaded.getDefiningOp<lm::LoadOp>();
  return load ? symbols.lookup<lm::VariableOp>(load.getVariable()) : lm::VariableOp();
}

lm::VariableOp StateFlattener::variableStored(Value value) {
  for (Operation *user : value.getUsers())
    if (auto store = dyn_cast<lm::StoreOp>(user))
      return symbols.lookup<lm::VariableOp>(store.getVariable());
  return {};
}

// Whether the op reads and writes all of some variables that lie in no storage yet.
bool StateFlattener::mayFlatten(Operation *op) {
  return llvm::all_of(statesOf(op), [&](const State &state) {
    lm::VariableOp variable = variableOf(state);
    return variable && !variable.getStorage() &&
           (!state.result || variableStored(state.result) == variable);
  });
}

// The matrix that holds `members`, in order, one for each of `parameters` and each where its
// parameter is. A member has an element for each of its parameter's, or for so many of them.
lm::VariableOp StateFlattener::makeStorage(StringRef name, ArrayRef<lm::VariableOp> parameters,
                                           ArrayRef<lm::VariableOp> members) {
  lm::VariableOp first = members.front();
  int64_t share = elementsOf(parameters.front()) / elementsOf(first), elements = 0;
  for (auto [parameter, place] : llvm::zip(parameters, members)) {
    lm::VariableOp member = place;
    assert(elements % share == 0 && elementsOf(parameter) == elementsOf(member) * share);
    member.setStorage(name);
    member.setStorageOffset(elements / share);
    elements += llvm::alignTo(elementsOf(parameter), kAlignment);
  }
  Type element = cast<RankedTensorType>(first.getType()).getElementType();
  int64_t rows = llvm::divideCeil(elements, kColumns);
  auto type = RankedTensorType::get({rows, kColumns / share}, element);
  b.setInsertionPoint(first);
  auto none = b.getDictionaryAttr(b.getNamedAttr("kind", b.getStringAttr("none")));
  auto storage = lm::VariableOp::create(b, first.getLoc(), name, first.getKind(), type, none,
                                        false, StringAttr());
  storage.setAnonymous(true);
  symbols.insert(storage);
  return storage;
}

// In the order of statesOf.
SmallVector<lm::VariableOp> StateFlattener::makeStorages(StringRef name, const Group &group) {
  SmallVector<SmallVector<lm::VariableOp>> members;
  for (Operation *op : group)
    for (auto [kind, state] : llvm::enumerate(statesOf(op))) {
      members.resize(std::max(members.size(), kind + 1));
      members[kind].push_back(variableOf(state));
    }
  SmallVector<lm::VariableOp> storages;
  for (auto [state, variables] : llvm::zip(statesOf(group.front()), members))
    storages.push_back(makeStorage((name + state.suffix).str(), members.front(), variables));
  return storages;
}

// `whole` takes the place of `old` among the operands of a sum over all elements.
void StateFlattener::replaceParts(Operation *user, ArrayRef<Value> old, Value whole) {
  SmallVector<Value> operands;
  for (Value operand : user->getOperands()) {
    if (operand == old.front())
      operands.push_back(whole);
    else if (!llvm::is_contained(old, operand))
      operands.push_back(operand);
  }
  user->setOperands(operands);
}

void StateFlattener::takeNormsOf(const Group &group, Operation *flat) {
  SmallVector<SmallVector<Value>, 3> parts(3);
  for (Operation *op : group)
    for (auto [kind, value] : llvm::enumerate(partsOf(op)))
      parts[kind].push_back(value);
  for (Operation &op : optimizer.getBody().front())
    if (isa<lm::GlobalNormOp, lm::NormOfPartsOp>(op))
      for (auto [old, whole] : llvm::zip(parts, partsOf(flat)))
        replaceParts(&op, old, whole);
}

// An AdamW op with its loads and stores.
void StateFlattener::erase(Operation *op) {
  SmallVector<Operation *> loads;
  for (const State &state : statesOf(op))
    if (state.operand)
      loads.push_back(state.operand.getDefiningOp());
  for (Value result : op->getResults())
    for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
      user->erase(); // stores: nothing else reads a result
  op->erase();
  for (Operation *load : loads)
    if (load->use_empty())
      load->erase();
}

void StateFlattener::flatten(unsigned index, Group &group) {
  Operation *first = group.front();
  std::string name = "flat." + std::to_string(index);
  SmallVector<lm::VariableOp> storages = makeStorages(name, group);
  SmallVector<State> states = statesOf(first);

  Location loc = NameLoc::get(b.getStringAttr("adamw/" + name));
  IRMapping mapping;
  for (auto [state, storage] : llvm::zip(states, storages)) {
    if (!state.operand)
      continue;
    if (state.result)
      b.setInsertionPoint(first);
    else
      b.setInsertionPointToStart(&optimizer.getBody().front()); // the norm reads it first
    mapping.map(state.operand, lm::LoadOp::create(b, loc, storage.getType(), storage.getSymName()));
  }
  b.setInsertionPoint(first);
  Operation *flat = b.clone(*first, mapping);
  flat->setLoc(loc);
  for (auto [state, storage] : llvm::zip(statesOf(flat), storages)) {
    if (!state.result)
      continue;
    state.result.setType(cast<RankedTensorType>(storage.getType()));
    lm::StoreOp::create(b, loc, state.result, storage.getSymName());
  }
  int64_t sums = isa<lm::AdamW8bitOp>(flat) ? elementsOf(storages[0]) / lm::AdamW8bitOp::kBlock
                                            : elementsOf(storages[0]) / kColumns;
  for (Value part : ArrayRef<Value>(partsOf(flat)).drop_front())
    part.setType(cast<RankedTensorType>(part.getType()).clone(sums));

  takeNormsOf(group, flat);
  for (Operation *op : group)
    erase(op);
}

static GroupKey keyOf(Operation *op) {
  GroupKey key;
  SmallVector<State> states = statesOf(op);
  for (Value operand : op->getOperands())
    if (llvm::none_of(states, [&](const State &state) { return state.operand == operand; }))
      key.scalars.push_back(operand);
  for (const State &state : states)
    key.elements.push_back(getElementTypeOrSelf(state.operand ? state.operand : state.result));
  return key;
}

// Whether each norm of the function is over all of the group or over nothing of it.
bool StateFlattener::normsTakeAllOrNone(const Group &group) {
  SmallVector<SmallVector<Value>, 3> parts(3);
  for (Operation *op : group)
    for (auto [kind, value] : llvm::enumerate(partsOf(op)))
      parts[kind].push_back(value);
  return llvm::all_of(optimizer.getBody().front(), [&](Operation &op) {
    if (!isa<lm::GlobalNormOp, lm::NormOfPartsOp>(op))
      return true;
    return llvm::all_of(parts, [&](ArrayRef<Value> values) {
      int64_t taken = llvm::count_if(values, [&](Value value) {
        return llvm::is_contained(op.getOperands(), value);
      });
      return taken == 0 || taken == int64_t(values.size());
    });
  });
}

unsigned StateFlattener::run() {
  SmallVector<std::pair<GroupKey, Group>> groups;
  for (Operation &op : optimizer.getBody().front()) {
    if (!isAdamW(&op) || !mayFlatten(&op))
      continue;
    GroupKey key = keyOf(&op);
    auto it = llvm::find_if(groups, [&](auto &entry) { return entry.first == key; });
    if (it == groups.end())
      it = groups.insert(groups.end(), {key, {}});
    it->second.push_back(&op);
  }
  unsigned made = 0;
  for (auto &[key, group] : groups)
    if (normsTakeAllOrNone(group))
      flatten(made++, group);
  return made;
}

namespace {
struct FlattenStatePass : lmc::impl::FlattenStatePassBase<FlattenStatePass> {
  void runOnOperation() override {
    auto optimizer = getOperation().lookupSymbol<func::FuncOp>("optimizer");
    if (!optimizer || optimizer.isExternal()) {
      getOperation().emitOpError("has no @optimizer; run lm-insert-optimizer first");
      return signalPassFailure();
    }
    numGroups += StateFlattener(getOperation(), optimizer).run();
  }
};
} // namespace
