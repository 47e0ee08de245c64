// lm-flatten-state: the state of parameters that AdamW treats alike becomes one matrix.
//
//   norm = lm.global_norm(w.grad, b.grad)        norm = lm.global_norm(flat.grad)
//   lm.adamw(w, w.grad, ...)               =>    lm.adamw(flat, flat.grad, ...)
//   lm.adamw(b, b.grad, ...)
//
// so that the optimizer is one pass over memory in a handful of kernels, however many
// parameters there are. The parameters lie in the matrices under their own names.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"

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

// What decides whether two parameters can go through one lm.adamw: its scalars, and the
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
  using Group = SmallVector<lm::AdamWOp>;

  lm::VariableOp variableOf(Value loaded);
  lm::VariableOp variableStored(Value value);
  bool mayFlatten(lm::AdamWOp op);
  bool normsTakeAllOrNone(const Group &group);
  lm::VariableOp makeStorage(StringRef name, ArrayRef<lm::VariableOp> members);
  void flatten(unsigned index, Group &group);
  void replaceParts(Operation *user, ArrayRef<Value> old, Value whole);

  SymbolTable symbols;
  func::FuncOp optimizer;
  OpBuilder b;
};

} // namespace

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
bool StateFlattener::mayFlatten(lm::AdamWOp op) {
  for (Value operand : {op.getParameter(), op.getGradient(), op.getMoment1(), op.getMoment2()})
    if (lm::VariableOp variable = variableOf(operand); !variable || variable.getStorage())
      return false;
  return variableStored(op.getNewParameter()) == variableOf(op.getParameter()) &&
         variableStored(op.getNewMoment1()) == variableOf(op.getMoment1()) &&
         variableStored(op.getNewMoment2()) == variableOf(op.getMoment2()) &&
         (!op.getCompute() || variableStored(op.getCompute()));
}

// The matrix that holds `members`, in order, each at a multiple of kAlignment elements.
lm::VariableOp StateFlattener::makeStorage(StringRef name, ArrayRef<lm::VariableOp> members) {
  int64_t elements = 0;
  for (lm::VariableOp member : members) {
    member.setStorage(name);
    member.setStorageOffset(elements);
    int64_t own = cast<RankedTensorType>(member.getType()).getNumElements();
    elements += (own + kAlignment - 1) / kAlignment * kAlignment;
  }
  lm::VariableOp first = members.front();
  Type element = cast<RankedTensorType>(first.getType()).getElementType();
  int64_t rows = (elements + kColumns - 1) / kColumns;
  auto type = RankedTensorType::get({rows, kColumns}, element);
  b.setInsertionPoint(first);
  auto none = b.getDictionaryAttr(b.getNamedAttr("kind", b.getStringAttr("none")));
  auto storage = lm::VariableOp::create(b, first.getLoc(), name, first.getKind(), type, none,
                                        false, StringAttr());
  storage.setAnonymous(true);
  symbols.insert(storage);
  return storage;
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

void StateFlattener::flatten(unsigned index, Group &group) {
  lm::AdamWOp first = group.front();
  std::string name = "flat." + std::to_string(index);
  auto storageOf = [&](StringRef suffix, llvm::function_ref<lm::VariableOp(lm::AdamWOp)> member) {
    SmallVector<lm::VariableOp> members;
    for (lm::AdamWOp op : group)
      members.push_back(member(op));
    return makeStorage((name + suffix).str(), members);
  };
  lm::VariableOp parameter =
      storageOf("", [&](lm::AdamWOp op) { return variableOf(op.getParameter()); });
  lm::VariableOp gradient =
      storageOf(".grad", [&](lm::AdamWOp op) { return variableOf(op.getGradient()); });
  lm::VariableOp moment1 =
      storageOf(".moment1", [&](lm::AdamWOp op) { return variableOf(op.getMoment1()); });
  lm::VariableOp moment2 =
      storageOf(".moment2", [&](lm::AdamWOp op) { return variableOf(op.getMoment2()); });
  lm::VariableOp copy;
  if (first.getCompute())
    copy = storageOf(".compute",
                     [&](lm::AdamWOp op) { return variableStored(op.getCompute()); });

  Location loc = NameLoc::get(b.getStringAttr("adamw/" + name));
  auto load = [&](lm::VariableOp variable) -> Value {
    return lm::LoadOp::create(b, loc, variable.getType(), variable.getSymName());
  };
  Block &body = optimizer.getBody().front();
  b.setInsertionPointToStart(&body); // the norm reads it first
  Value g = load(gradient);
  b.setInsertionPoint(first);
  Value p = load(parameter), m = load(moment1), v = load(moment2);
  auto type = cast<RankedTensorType>(parameter.getType());
  auto rows = RankedTensorType::get({type.getDimSize(0)}, type.getElementType());
  auto flat = lm::AdamWOp::create(
      b, loc, type, type, type, rows, rows, copy ? copy.getType() : Type(), p, g, m, v,
      first.getNorm(), first.getLr(), first.getBeta1(), first.getBeta2(), first.getEps(),
      first.getWeightDecay(), first.getBiasCorrection1(), first.getBiasCorrection2(),
      first.getClipGrad());
  auto store = [&](Value value, lm::VariableOp variable) {
    lm::StoreOp::create(b, loc, value, variable.getSymName());
  };
  store(flat.getNewParameter(), parameter);
  store(flat.getNewMoment1(), moment1);
  store(flat.getNewMoment2(), moment2);
  if (copy)
    store(flat.getCompute(), copy);

  SmallVector<Value> gradients, updates, parameters;
  for (lm::AdamWOp op : group) {
    gradients.push_back(op.getGradient());
    updates.push_back(op.getUpdateSq());
    parameters.push_back(op.getParamSq());
  }
  for (Operation &op : body) {
    if (isa<lm::GlobalNormOp>(op))
      replaceParts(&op, gradients, g);
    if (isa<lm::NormOfPartsOp>(op)) {
      replaceParts(&op, updates, flat.getUpdateSq());
      replaceParts(&op, parameters, flat.getParamSq());
    }
  }
  for (lm::AdamWOp op : group) {
    SmallVector<Operation *> loads;
    for (Value operand : {op.getParameter(), op.getGradient(), op.getMoment1(), op.getMoment2()})
      loads.push_back(operand.getDefiningOp());
    for (Value result : op->getResults())
      for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
        user->erase(); // stores: nothing else reads a result
    op.erase();
    for (Operation *load : loads)
      if (load->use_empty())
        load->erase();
  }
}

static GroupKey keyOf(lm::AdamWOp op) {
  GroupKey key;
  for (Value operand : op->getOperands()) {
    auto type = cast<RankedTensorType>(operand.getType());
    bool isState = llvm::is_contained(
        {op.getParameter(), op.getGradient(), op.getMoment1(), op.getMoment2()}, operand);
    if (isState)
      key.elements.push_back(type.getElementType());
    else
      key.scalars.push_back(operand);
  }
  if (op.getCompute())
    key.elements.push_back(cast<RankedTensorType>(op.getCompute().getType()).getElementType());
  return key;
}

// Whether each norm of the function is over all of the group or over nothing of it.
bool StateFlattener::normsTakeAllOrNone(const Group &group) {
  SmallVector<SmallVector<Value>, 3> parts(3);
  for (lm::AdamWOp op : group) {
    parts[0].push_back(op.getGradient());
    parts[1].push_back(op.getUpdateSq());
    parts[2].push_back(op.getParamSq());
  }
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
  for (auto op : optimizer.getBody().front().getOps<lm::AdamWOp>()) {
    if (!mayFlatten(op))
      continue;
    GroupKey key = keyOf(op);
    auto it = llvm::find_if(groups, [&](auto &entry) { return entry.first == key; });
    if (it == groups.end())
      it = groups.insert(groups.end(), {key, {}});
    it->second.push_back(op);
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
