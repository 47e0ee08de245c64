// lm-merge-linears: merges linear layers with the same input into one linear layer, whose weight
// contains all their weights. Passes.td shows an example. One matrix product reads the input once,
// and uses a device better than several smaller products.
#include "passes/fusion/Passes.h"

#include "dialects/interfaces/LocationName.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringSet.h"

namespace lmc {
#define GEN_PASS_DEF_MERGELINEARSPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns the name of a variable that contains the variables `names`: "a.q.w", "a.k.w" ->
// "a.q+k.w".
static std::string joinedName(ArrayRef<StringRef> names) {
  StringRef prefix = names.front(), suffix = names.front();
  for (StringRef name : names.drop_front()) {
    while (!name.starts_with(prefix))
      prefix = prefix.drop_back();
    while (!name.ends_with(suffix))
      suffix = suffix.drop_front();
  }
  prefix = prefix.take_front(prefix.rfind('.') + 1);
  for (StringRef name : names) // prefix and suffix must not overlap in any name
    while (prefix.size() + suffix.size() > name.size())
      suffix = suffix.drop_front();
  suffix = suffix.contains('.') ? suffix.drop_front(suffix.find('.')) : "";
  std::string joined = prefix.str();
  for (StringRef name : names) {
    if (name.data() != names.front().data())
      joined += "+";
    joined += name.drop_front(prefix.size()).drop_back(suffix.size());
  }
  return joined + suffix.str();
}

namespace {

// Returns the location of an op that replaces all of `ops`.
Location fusedName(OpBuilder &b, ArrayRef<Operation *> ops) {
  SmallVector<StringRef> names;
  for (Operation *op : ops)
    if (auto name = dyn_cast<NameLoc>(op->getLoc()))
      names.push_back(name.getName().getValue());
  if (names.size() != ops.size())
    return ops.front()->getLoc();
  return NameLoc::get(b.getStringAttr(joinedName(names)));
}

// Returns the rope that is the only reader of `part`, or null if there is none.
lm::RopeOp ropeOf(Value part) {
  return part.hasOneUse() ? dyn_cast<lm::RopeOp>(*part.user_begin()) : lm::RopeOp();
}

bool rotateAlike(lm::RopeOp x, lm::RopeOp y) {
  return isa<BlockArgument>(x.getCos()) && isa<BlockArgument>(x.getSin()) &&
         x.getCos() == y.getCos() && x.getSin() == y.getSin() && x.getHeadDim() == y.getHeadDim() &&
         x.getInverse() == y.getInverse();
}

// Finds the first two or more consecutive results of `split` whose ropes apply the same rotation.
// Replaces these ropes by one rope over the columns of all of them, and a split of its result.
void mergeRopes(OpBuilder &b, lm::SplitOp split) {
  unsigned count = split.getNumResults();
  auto endOfRun = [&](unsigned begin) {
    unsigned end = begin;
    while (end < count && ropeOf(split.getResult(end)) &&
           rotateAlike(ropeOf(split.getResult(end)), ropeOf(split.getResult(begin))))
      ++end;
    return end;
  };
  unsigned begin = 0;
  while (begin < count && endOfRun(begin) < begin + 2)
    ++begin;
  if (begin == count)
    return;
  unsigned end = endOfRun(begin);
  ResultRange run = split->getResults().slice(begin, end - begin);
  SmallVector<Operation *> ropes;
  int64_t columns = 0;
  for (Value part : run) {
    ropes.push_back(ropeOf(part));
    columns += extent(part, 1);
  }
  SmallVector<Type> types(split.getResultTypes()), partTypes(run.getTypes());
  types[begin] = resized(tensorTypeOf(split.getX()), 1, columns);
  types.erase(types.begin() + begin + 1, types.begin() + end);
  b.setInsertionPoint(split);
  Value source = types.size() == 1 ? split.getX() : Value();
  lm::SplitOp coarse;
  if (!source) {
    coarse = lm::SplitOp::create(b, split.getLoc(), types, split.getX());
    source = coarse.getResult(begin);
  }
  auto first = cast<lm::RopeOp>(
      *llvm::min_element(ropes, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); }));
  b.setInsertionPoint(first);
  Location loc = fusedName(b, ropes);
  auto rope = lm::RopeOp::create(b, loc, source.getType(), source, first.getCos(), first.getSin(),
                                 first.getHeadDim(), first.getInverse());
  auto parts = lm::SplitOp::create(b, loc, partTypes, rope.getResult());
  for (auto [old, part] : llvm::zip_equal(ropes, parts.getParts())) {
    old->getResult(0).replaceAllUsesWith(part);
    old->erase();
  }
  for (unsigned i = 0; i < count; ++i)
    if (i < begin || i >= end)
      split.getResult(i).replaceAllUsesWith(
          coarse.getResult(i < begin ? i : i - (end - begin) + 1));
  split.erase();
}

class LinearMerger {
public:
  LinearMerger(ModuleOp module, double bytesPerSecond, double launchSeconds)
      : module(module), symbols(module), b(module), bytesPerSecond(bytesPerSecond),
        launchSeconds(launchSeconds) {}

  // Returns the number of linear layers that were merged into others.
  unsigned run() {
    SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
    for (func::FuncOp function : functions)
      function.walk([&](Operation *op) {
        if (auto call = dyn_cast<func::CallOp>(op))
          calls[symbols.lookup(call.getCallee())].push_back(call);
        if (auto load = dyn_cast<lm::LoadOp>(op))
          loads[load.getVariable()].push_back(load);
        if (auto store = dyn_cast<lm::StoreOp>(op))
          stored.insert(store.getVariable());
      });
    unsigned merged = 0;
    for (func::FuncOp layer : functions) {
      if (layer.isExternal() || calls[layer].empty())
        continue;
      for (const Group &group : groupsOf(layer))
        if (merge(layer, group))
          merged += unsigned(group.size());
      SmallVector<lm::SplitOp> splits(layer.getBody().front().getOps<lm::SplitOp>());
      for (lm::SplitOp split : splits)
        mergeRopes(b, split);
    }
    for (Operation *variable : replaced)
      symbols.erase(variable);
    return merged;
  }

  // Pairs of linear layers that were not merged because their parameter groups differ.
  FusionReport report;

private:
  using Group = SmallVector<lm::LinearOp>;      // linear layers that may be merged into one
  using Arguments = SmallVector<BlockArgument>; // arguments of a layer, to be replaced by one

  // Returns the sets of linear layers that may be merged. The layers of a set have the same input,
  // element types and parameter groups. Their weights and biases are arguments of `layer` that no
  // other op reads.
  SmallVector<Group> groupsOf(func::FuncOp layer) {
    llvm::MapVector<Value, Group> byInput;
    auto isOwnArgument = [](Value value) { return isa<BlockArgument>(value) && value.hasOneUse(); };
    for (auto linear : layer.getBody().front().getOps<lm::LinearOp>()) {
      Value bias = linear.getBias();
      if (linear.getTransposed() || !isOwnArgument(linear.getWeight()) ||
          (bias && !isOwnArgument(bias)))
        continue;
      Group &group = byInput[linear.getX()];
      auto formOf = [](lm::LinearOp each) {
        return std::tuple(bool(each.getBias()), each.getWeight().getType().getElementType(),
                          each.getType().getElementType());
      };
      if (group.empty() || formOf(group.front()) == formOf(linear))
        group.push_back(linear);
    }
    SmallVector<Group> groups;
    for (auto &[input, group] : byInput)
      for (const Group &part : byOptimizerGroup(layer, group))
        if (part.size() > 1)
          groups.push_back(part);
    return groups;
  }

  // Returns the parameter groups of the weight and of the bias of `linear` in each call of `layer`.
  // A null attribute stands for a parameter that is in no group.
  SmallVector<Attribute> optimizerGroupsOf(func::FuncOp layer, lm::LinearOp linear) {
    SmallVector<Attribute> groups;
    for (func::CallOp call : calls[layer])
      for (Value operand : {linear.getWeight(), linear.getBias()})
        if (auto argument = dyn_cast_if_present<BlockArgument>(operand)) {
          auto load = call.getOperand(argument.getArgNumber()).getDefiningOp<lm::LoadOp>();
          lm::VariableOp variable =
              load ? copiedParameter(symbols.lookup<lm::VariableOp>(load.getVariable()))
                   : lm::VariableOp();
          groups.push_back(variable ? variable.getGroupAttr() : lm::GroupAttr());
        }
    return groups;
  }

  // Divides `group` into sets. The parameters of a set are in the same parameter groups. Reports
  // the linear layers that cannot be merged because their parameter groups differ.
  SmallVector<Group> byOptimizerGroup(func::FuncOp layer, const Group &group) {
    SmallVector<std::pair<SmallVector<Attribute>, Group>> parts;
    for (lm::LinearOp linear : group) {
      SmallVector<Attribute> own = optimizerGroupsOf(layer, linear);
      auto *part = llvm::find_if(parts, [&](auto &each) { return each.first == own; });
      if (part == parts.end()) {
        if (!parts.empty()) {
          // The merged product would read x once instead of twice.
          const uint64_t bytes = byteSize(tensorTypeOf(linear.getX()));
          add(report, {/*isSiblings=*/true, layer.getSymName().str(),
                       nameOf(parts.front().second.front().getLoc()), nameOf(linear.getLoc()), "",
                       "their parameters are of different groups of the optimizer", bytes,
                       double(bytes) / bytesPerSecond + launchSeconds});
        }
        part = parts.insert(parts.end(), {own, {}});
      }
      part->second.push_back(linear);
    }
    return llvm::map_to_vector(parts, [](auto &part) { return part.second; });
  }

  // Returns true if the variables that calls pass for `arguments` can become one variable: all are
  // parameters, or all are compute copies of parameters, and nothing else reads or writes them.
  bool mayLayTogether(func::FuncOp layer, const Arguments &arguments) {
    // Maps a variable to a pair: the variable's index in `arguments`, and the variable that the
    // same call passes for arguments[0]. All calls that pass the variable must give the same pair.
    llvm::StringMap<std::pair<unsigned, Operation *>> seen;
    for (func::CallOp call : calls[layer]) {
      lm::VariableOp first;
      for (auto [place, argument] : llvm::enumerate(arguments)) {
        auto load = call.getOperand(argument.getArgNumber()).getDefiningOp<lm::LoadOp>();
        if (!load || !load.getResult().hasOneUse())
          return false;
        auto variable = symbols.lookup<lm::VariableOp>(load.getVariable());
        if (!first)
          first = variable;
        std::pair<unsigned, Operation *> position(place, first);
        auto [it, inserted] = seen.try_emplace(load.getVariable(), position);
        lm::VariableOp parameter = copiedParameter(variable);
        if (it->second != position || !parameter ||
            parameter.getKind() != lm::VariableKind::Parameter || parameter.getStorage() ||
            variable.getKind() != first.getKind() ||
            parameter.getWeightDecay() != copiedParameter(first).getWeightDecay() ||
            parameter.getGroupAttr() != copiedParameter(first).getGroupAttr() ||
            parameter.getHidden() != copiedParameter(first).getHidden() ||
            (parameter != variable && !loads[parameter.getSymName()].empty()) ||
            stored.contains(variable.getSymName()) || stored.contains(parameter.getSymName()))
          return false;
      }
    }
    // Only calls of `layer` may read these variables.
    for (auto &entry : seen)
      for (lm::LoadOp load : loads[entry.first()]) {
        auto call = dyn_cast<func::CallOp>(*load->user_begin());
        if (!call || call.getCallee() != layer.getSymName())
          return false;
      }
    return true;
  }

  lm::VariableOp copiedParameter(lm::VariableOp variable) {
    if (variable.getKind() != lm::VariableKind::ComputeCopy)
      return variable;
    return symbols.lookup<lm::VariableOp>(*variable.getParameter());
  }

  // Returns the variable that contains the rows of `variables`, one after the other, and creates it
  // if it does not exist yet.
  lm::VariableOp layTogether(ArrayRef<lm::VariableOp> variables) {
    using Kind = lm::VariableKind;
    SmallVector<StringRef> names;
    SmallVector<Attribute> parts;
    int64_t rows = 0;
    for (lm::VariableOp variable : variables) {
      names.push_back(variable.getSymName());
      int64_t own = tensorTypeOf(variable).getDimSize(0);
      if (ArrayAttr padded = variable.getPartsAttr())
        llvm::append_range(parts, padded);
      else
        parts.push_back(
            lm::PartAttr::get(b.getContext(), variable.getSymNameAttr(), own, variable.getInit()));
      rows += own;
    }
    lm::VariableOp first = variables.front();
    bool copy = first.getKind() == Kind::ComputeCopy;
    std::string name = copy ? "" : joinedName(names);
    auto init = lm::InitAttr::get(b.getContext(), lm::InitKind::None);
    StringAttr parameter;
    if (copy) {
      auto parameters = llvm::map_to_vector(
          variables, [&](lm::VariableOp variable) { return copiedParameter(variable); });
      parameter = layTogether(parameters).getSymNameAttr();
      name = lm::stateName(parameter.getValue(), Kind::ComputeCopy);
      init = lm::InitAttr::copyOf(parameter);
    }
    if (auto known = symbols.lookup<lm::VariableOp>(name))
      return known; // the variable was already created for another call
    b.setInsertionPoint(first);
    auto joined = lm::VariableOp::create(b, first.getLoc(), name, first.getKind(),
                                         resized(tensorTypeOf(first), 0, rows), init,
                                         first.getWeightDecay(), parameter);
    joined.setHidden(first.getHidden());
    joined.setGroupAttr(first.getGroupAttr());
    joined.setUnquantized(
        llvm::any_of(variables, [](lm::VariableOp each) { return each.getUnquantized(); }));
    if (!copy)
      joined.setPartsAttr(b.getArrayAttr(parts));
    symbols.insert(joined);
    replaced.insert_range(variables);
    return joined;
  }

  // Adds an argument to `layer`, before the first of `arguments`, and returns it. The new argument
  // has the rows of all `arguments`. Every call passes one variable for it, which contains the
  // variables that the call passed for `arguments`.
  Value layTogether(func::FuncOp layer, const Arguments &arguments) {
    unsigned place = arguments.front().getArgNumber();
    int64_t rows = 0;
    for (BlockArgument argument : arguments)
      rows += tensorTypeOf(argument).getDimSize(0);
    for (func::CallOp call : calls[layer]) {
      SmallVector<lm::VariableOp> variables;
      for (BlockArgument argument : arguments) {
        auto load = call.getOperand(argument.getArgNumber()).getDefiningOp<lm::LoadOp>();
        variables.push_back(symbols.lookup<lm::VariableOp>(load.getVariable()));
      }
      lm::VariableOp whole = layTogether(variables);
      b.setInsertionPointAfterValue(call.getOperand(place));
      auto load = lm::LoadOp::create(b, call.getOperand(place).getLoc(), whole.getType(),
                                     whole.getSymName());
      call->insertOperands(place, load.getResult());
    }
    if (failed(layer.insertArgument(place, resized(tensorTypeOf(arguments.front()), 0, rows), {},
                                    arguments.front().getLoc())))
      llvm_unreachable("a function with a body takes another argument");
    return layer.getArgument(place);
  }

  // Merges the linear layers of `group`. Does nothing and returns false if this is not possible.
  bool merge(func::FuncOp layer, const Group &group) {
    Arguments weights, biases;
    for (lm::LinearOp linear : group) {
      weights.push_back(cast<BlockArgument>(linear.getWeight()));
      if (linear.getBias())
        biases.push_back(cast<BlockArgument>(linear.getBias()));
    }
    if (!mayLayTogether(layer, weights) || !mayLayTogether(layer, biases))
      return false;
    SmallVector<Type> types;
    SmallVector<Operation *> ops;
    int64_t columns = 0;
    for (lm::LinearOp linear : group) {
      types.push_back(linear.getType());
      columns += extent(linear.getResult(), 1);
      ops.push_back(linear);
    }
    Value weight = layTogether(layer, weights);
    Value bias = biases.empty() ? Value() : layTogether(layer, biases);
    lm::LinearOp first = group.front();
    b.setInsertionPoint(first);
    RankedTensorType type = resized(tensorTypeOf(first.getResult()), 1, columns);
    Location loc = fusedName(b, ops);
    auto linear = lm::LinearOp::create(b, loc, type, first.getX(), weight, bias, Value());
    auto split = lm::SplitOp::create(b, loc, types, linear.getResult());
    for (auto [old, part] : llvm::zip_equal(Group(group), split.getParts())) {
      old.getResult().replaceAllUsesWith(part);
      old.erase();
    }
    weights.append(biases);
    eraseArguments(layer, weights);
    return true;
  }

  void eraseArguments(func::FuncOp layer, const Arguments &arguments) {
    Block &body = layer.getBody().front();
    llvm::BitVector gone(body.getNumArguments());
    for (BlockArgument argument : arguments)
      gone.set(argument.getArgNumber());
    for (func::CallOp call : calls[layer]) {
      SmallVector<lm::LoadOp> spent;
      for (BlockArgument argument : arguments)
        spent.push_back(call.getOperand(argument.getArgNumber()).getDefiningOp<lm::LoadOp>());
      call->eraseOperands(gone);
      for (lm::LoadOp load : spent) {
        llvm::erase(loads[load.getVariable()], load);
        load.erase();
      }
    }
    if (failed(layer.eraseArguments(gone)))
      llvm_unreachable("a function with a body loses arguments");
  }

  ModuleOp module;
  SymbolTable symbols;
  OpBuilder b;
  const double bytesPerSecond, launchSeconds;
  llvm::DenseMap<Operation *, SmallVector<func::CallOp>> calls; // the calls of each layer
  llvm::StringMap<SmallVector<lm::LoadOp>> loads;               // the loads of each variable
  llvm::StringSet<> stored;                                     // names of variables that ops write
  llvm::SetVector<Operation *> replaced;                        // variables merged into others
};

struct MergeLinearsPass : lmc::impl::MergeLinearsPassBase<MergeLinearsPass> {
  using MergeLinearsPassBase::MergeLinearsPassBase;

  void runOnOperation() override {
    LinearMerger merger(getOperation(), bytesPerSecond, launchSeconds);
    numMerged += merger.run();
    if (printReport)
      print(merger.report, llvm::outs());
    if (report)
      llvm::append_range(*report, merger.report);
  }

  FusionReport *report = nullptr;
};
} // namespace

std::unique_ptr<Pass> lmc::createMergeLinearsPass(MergeLinearsPassOptions options,
                                                  FusionReport &report) {
  auto pass = std::make_unique<MergeLinearsPass>(std::move(options));
  pass->report = &report;
  return pass;
}
