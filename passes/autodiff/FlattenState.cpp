// lm-flatten-state: combines all parameters with the same optimizer op, scalars and dtypes. One
// matrix (a storage) for each kind of variable, such as the gradient, then contains them all.
//
//   norm = lm.global_norm(w.grad, b.grad)        norm = lm.global_norm(flat.grad)
//   lm.adamw(w, w.grad, ...)               =>    lm.adamw(flat, flat.grad, ...)
//   lm.adamw(b, b.grad, ...)
//
// A few kernels then update all parameters. The parameters keep their names within the storages.
//
// A parameter with 8-bit moments begins at the start of a moment block, and fills whole blocks.
// Each moment block therefore contains the same elements as it would without this pass.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/TensorTypes.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_FLATTENSTATEPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using lm::OptimizerOpInterface;
using lm::OptimizerUse;

// The number of elements in a row of a storage. A row is one work item: it is large enough for a
// thread block, and small enough for a cache.
static constexpr int64_t kColumns = 4096;
// For wide loads, each parameter begins at a multiple of this many elements (256 bytes of bf16).
static constexpr int64_t kAlignment = 128;

namespace {

// Parameters with equal keys share one optimizer step.
struct GroupKey {
  OperationName optimizer;
  SmallVector<Value> scalars;
  SmallVector<Type> elements; // of the variables
  bool operator==(const GroupKey &other) const = default;
};

// Returns the gradient that `step` reads, and two results of `step` that norms read: the sums of
// squares of the update, and the sums of squares of the parameter.
SmallVector<Value> partsOf(OptimizerOpInterface step) {
  return {step->getOperand(1), step.getUpdateSums(), step.getParameterSums()};
}

// Returns three lists over all steps: gradients, sums of the updates, sums of the parameters.
SmallVector<SmallVector<Value>, 3> partsOf(ArrayRef<OptimizerOpInterface> group) {
  SmallVector<SmallVector<Value>, 3> parts(3);
  for (OptimizerOpInterface step : group)
    for (auto [kind, value] : llvm::enumerate(partsOf(step)))
      parts[kind].push_back(value);
  return parts;
}

int64_t elementsOf(lm::VariableOp variable) { return tensorTypeOf(variable).getNumElements(); }

GroupKey keyOf(OptimizerOpInterface step) {
  GroupKey key{step->getName(), SmallVector<Value>(step.getScalarOperands()), {}};
  for (const OptimizerUse &use : step.getUses())
    key.elements.push_back(getElementTypeOrSelf(use.operand ? use.operand : use.result));
  return key;
}

class StateFlattener {
public:
  StateFlattener(ModuleOp module, func::FuncOp optimizer)
      : symbols(module), optimizer(optimizer), b(module.getContext()) {}

  unsigned run() {
    SmallVector<std::pair<GroupKey, Group>> groups;
    for (auto step : optimizer.getBody().front().getOps<OptimizerOpInterface>()) {
      if (!mayFlatten(step))
        continue;
      GroupKey key = keyOf(step);
      auto it = llvm::find_if(groups, [&](auto &entry) { return entry.first == key; });
      if (it == groups.end())
        it = groups.insert(groups.end(), {key, {}});
      it->second.push_back(step);
    }
    unsigned made = 0;
    for (auto &[key, group] : groups)
      if (normsTakeAllOrNone(group))
        flatten(made++, group);
    return made;
  }

private:
  using Group = SmallVector<OptimizerOpInterface>;

  lm::VariableOp variableOf(Value loaded) {
    auto load = loaded.getDefiningOp<lm::LoadOp>();
    return load ? symbols.lookup<lm::VariableOp>(load.getVariable()) : lm::VariableOp();
  }

  lm::VariableOp variableStored(Value value) {
    for (Operation *user : value.getUsers())
      if (auto store = dyn_cast<lm::StoreOp>(user))
        return symbols.lookup<lm::VariableOp>(store.getVariable());
    return {};
  }

  lm::VariableOp variableOf(const OptimizerUse &use) {
    return use.operand ? variableOf(use.operand) : variableStored(use.result);
  }

  // Returns true if `step` treats all elements alike, and reads and writes whole variables that are
  // not yet part of a storage.
  bool mayFlatten(OptimizerOpInterface step) {
    return !step->hasAttr(lm::kMatrices) &&
           llvm::all_of(step.getUses(), [&](const OptimizerUse &use) {
             lm::VariableOp variable = variableOf(use);
             return variable && !variable.getStorage() &&
                    (!use.result || variableStored(use.result) == variable);
           });
  }

  // Returns true if each norm in the function reads the values of all steps of the group, or none.
  bool normsTakeAllOrNone(const Group &group) {
    return llvm::all_of(optimizer.getBody().front(), [&](Operation &op) {
      if (!isa<lm::GlobalNormOp, lm::NormOfPartsOp>(op))
        return true;
      return llvm::all_of(partsOf(group), [&](ArrayRef<Value> values) {
        int64_t taken = llvm::count_if(
            values, [&](Value value) { return llvm::is_contained(op.getOperands(), value); });
        return taken == 0 || taken == int64_t(values.size());
      });
    });
  }

  // Creates the storage of `members`. Member i belongs to parameter i, and has one element per
  // `share` elements of the parameter. `share` is 256 for scales, else 1.
  lm::VariableOp makeStorage(StringRef name, ArrayRef<lm::VariableOp> parameters,
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
    Type element = tensorTypeOf(first).getElementType();
    int64_t rows = llvm::divideCeil(elements, kColumns);
    auto type = RankedTensorType::get({rows, kColumns / share}, element);
    b.setInsertionPoint(first);
    auto storage = lm::VariableOp::create(b, first.getLoc(), name, first.getKind(), type,
                                          lm::InitAttr::get(b.getContext(), lm::InitKind::None));
    storage.setAnonymous(true);
    symbols.insert(storage);
    return storage;
  }

  // Returns the storages of a group of steps, in the order of getUses().
  SmallVector<lm::VariableOp> makeStorages(StringRef name, const Group &group) {
    SmallVector<SmallVector<lm::VariableOp>> members;
    for (OptimizerOpInterface step : group)
      for (auto [number, use] : llvm::enumerate(step.getUses())) {
        members.resize(std::max(members.size(), number + 1));
        members[number].push_back(variableOf(use));
      }
    SmallVector<lm::VariableOp> storages;
    for (const auto &variables : members) {
      lm::VariableOp first = variables.front();
      storages.push_back(
          makeStorage(lm::stateName(name, first.getKind()), members.front(), variables));
    }
    return storages;
  }

  void flatten(unsigned index, Group &group) {
    OptimizerOpInterface first = group.front();
    std::string name = "flat." + std::to_string(index);
    SmallVector<lm::VariableOp> storages = makeStorages(name, group);

    Location loc = NameLoc::get(b.getStringAttr(first.getStepName() + "/" + name));
    IRMapping mapping;
    for (auto [use, storage] : llvm::zip(first.getUses(), storages)) {
      if (!use.operand)
        continue;
      if (use.result)
        b.setInsertionPoint(first);
      else
        b.setInsertionPointToStart(&optimizer.getBody().front()); // norms read the gradient earlier
      mapping.map(use.operand, lm::LoadOp::create(b, loc, storage.getType(), storage.getSymName()));
    }
    b.setInsertionPoint(first);
    auto flat = cast<OptimizerOpInterface>(b.clone(*first.getOperation(), mapping));
    flat->setLoc(loc);
    for (auto [use, storage] : llvm::zip(flat.getUses(), storages)) {
      if (!use.result)
        continue;
      use.result.setType(tensorTypeOf(storage));
      lm::StoreOp::create(b, loc, use.result, storage.getSymName());
    }
    int64_t sums = flat.getNumSums(cast<RankedTensorType>(storages[0].getType()));
    for (Value part : {flat.getUpdateSums(), flat.getParameterSums()})
      part.setType(tensorTypeOf(part).clone(sums));

    takeNormsOf(group, flat);
    for (OptimizerOpInterface step : group)
      erase(step);
  }

  void takeNormsOf(const Group &group, OptimizerOpInterface flat) {
    for (Operation &op : optimizer.getBody().front())
      if (isa<lm::GlobalNormOp, lm::NormOfPartsOp>(op))
        for (auto [old, whole] : llvm::zip(partsOf(group), partsOf(flat)))
          replaceParts(&op, old, whole);
  }

  void erase(OptimizerOpInterface step) {
    SmallVector<Operation *> loads;
    for (const OptimizerUse &use : step.getUses())
      if (use.operand)
        loads.push_back(use.operand.getDefiningOp());
    for (Value result : step->getResults())
      for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
        user->erase(); // the users are stores, because nothing else reads a result
    step->erase();
    for (Operation *load : loads)
      if (load->use_empty())
        load->erase();
  }

  // Replaces the operands `old` of a norm by `whole`.
  void replaceParts(Operation *user, ArrayRef<Value> old, Value whole) {
    SmallVector<Value> operands;
    for (Value operand : user->getOperands()) {
      if (operand == old.front())
        operands.push_back(whole);
      else if (!llvm::is_contained(old, operand))
        operands.push_back(operand);
    }
    user->setOperands(operands);
  }

  SymbolTable symbols;
  func::FuncOp optimizer;
  OpBuilder b;
};

struct FlattenStatePass : lmc::impl::FlattenStatePassBase<FlattenStatePass> {
  void runOnOperation() override {
    auto optimizer = getOperation().lookupSymbol<func::FuncOp>(names::kOptimizer);
    if (!optimizer || optimizer.isExternal()) {
      getOperation().emitOpError("has no @optimizer; run lm-insert-optimizer first");
      return signalPassFailure();
    }
    numGroups += StateFlattener(getOperation(), optimizer).run();
  }
};
} // namespace
