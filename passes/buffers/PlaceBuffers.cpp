// plan-place-buffers: every tensor gets its bytes, every op becomes a command.
//
//   %y = kern.launch @mlp(%g, %u)
//   =>
//   %0 = plan.slice @workspace[4096] activations "layers.0/mlp" : !plan.slice<...>
//   plan.launch @mlp(%g, %u, %0) inputs 2 items 8 chunk 8
//
// Values that must or may share bytes are first joined into one buffer (see
// BufferAssignment); what remains is packed by liveness.
#include "passes/buffers/Passes.h"

#include "compiler/algorithms/Packing.h"
#include "dialects/plan/Plan.h"
#include "passes/buffers/BufferAssignment.h"
#include "passes/buffers/CheckAliasing.h"
#include "compiler/kernels/Hero.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace lmc {
#define GEN_PASS_DEF_PLACEBUFFERSPASS
#include "passes/buffers/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;

static constexpr uint64_t kAlignment = 64; // a cache line, which is also the widest vector

static uint64_t roundUp(uint64_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

static std::string nameOf(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  return "";
}

namespace {

// Turns one function's ops into commands on placed buffers.
class Placer {
public:
  Placer(func::FuncOp function, SymbolTable &symbols, const Target &target, bool reuse)
      : function(function), symbols(symbols), target(target), reuse(reuse),
        b(function.getContext()) {}

  // Appends the plan.function after `function`. Returns its peak bytes of workspace, and the lower
  // bound of all packings.
  struct Peak {
    uint64_t bytes = 0, lowerBound = 0;
  };
  FailureOr<Peak> run();

private:
  Value slice(const BufferView &view, RankedTensorType type, StringRef source);
  Value slice(Value value) {
    return slice(assignment->view(value), cast<RankedTensorType>(value.getType()),
                 sourceOf(value));
  }
  // Returns the slice of the op's scratch; null if the op needs none.
  Value scratchOf(Operation *op) {
    auto workspace = assignment->workspaceOf(op);
    return workspace ? slice({workspace->buffer, 0}, workspace->type, nameOf(op->getLoc()))
                     : Value();
  }
  std::string sourceOf(Value value) {
    Operation *op = value.getDefiningOp();
    return op ? nameOf(op->getLoc()) : "";
  }
  LogicalResult emit(Operation *op);
  kern::KernelOp kernelFor(kern::LaunchOp launch);

  func::FuncOp function;
  SymbolTable &symbols;
  const Target &target;
  const bool reuse;
  OpBuilder b;
  std::unique_ptr<BufferAssignment> assignment;
  SmallVector<uint64_t> offsets; // of temporaries, by number of buffer

  // One slice per view. Its live range, in commands, is set at the end.
  llvm::MapVector<std::tuple<unsigned, int64_t, int64_t, int64_t, Type>, Value> slices;
  SmallVector<int64_t> commandOf; // per position in the function, the commands before it
  llvm::DenseMap<Operation *, FailureOr<KernelShape>> shapes; // of the kernels launched so far
};

} // namespace

Value Placer::slice(const BufferView &view, RankedTensorType type, StringRef source) {
  auto sliceType = plan_ir::SliceType::get(b.getContext(), type);
  const Buffer &buffer = assignment->buffer(view.buffer);
  Value &known = slices[{view.buffer, view.offset, view.rows, view.pitch, type}];
  if (known)
    return known;
  if (!buffer.variable.empty())
    return known = plan_ir::VariableRefOp::create(b, function.getLoc(), sliceType,
                                                  buffer.variable, view.offset, view.rows,
                                                  view.pitch);
  return known = plan_ir::SliceOp::create(
             b, function.getLoc(), sliceType, "workspace",
             int64_t(offsets[view.buffer]) + view.offset, buffer.category,
             source, 0, 0, view.rows, view.pitch);
}

// Returns the launch's kernel in the variant for the layouts of the launch's arguments.
kern::KernelOp Placer::kernelFor(kern::LaunchOp launch) {
  auto kernel = symbols.lookup<kern::KernelOp>(launch.getKernel());
  SmallVector<int64_t> rows, pitches;
  std::string suffix;
  for (Value value : llvm::concat<Value>(SmallVector<Value>(launch.getInputs()),
                                         SmallVector<Value>(launch->getResults()))) {
    BufferView view = assignment->view(value);
    auto type = cast<RankedTensorType>(value.getType());
    rows.push_back(view.rows);
    pitches.push_back(view.pitch * 8 / int64_t(type.getElementTypeBitWidth()));
    suffix += "_" + std::to_string(pitches.back());
  }
  if (llvm::all_of(pitches, [](int64_t pitch) { return pitch == 0; }))
    return kernel;
  std::string name = (kernel.getSymName() + "_pitch" + suffix).str();
  if (auto known = symbols.lookup<kern::KernelOp>(name))
    return known;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(kernel);
  auto variant = cast<kern::KernelOp>(b.clone(*kernel));
  variant.setSymName(name);
  variant.setArgRows(rows);
  variant.setArgPitches(pitches);
  symbols.insert(variant);
  return variant;
}

LogicalResult Placer::emit(Operation *op) {
  Location loc = op->getLoc();
  for (const auto &copy : assignment->copiesBefore(op))
    plan_ir::CopyOp::create(b, loc, slice(copy.from, copy.type, nameOf(loc)),
                            slice(copy.to, copy.type, nameOf(loc)));
  if (isa<func::ReturnOp, tensor::EmptyOp, tensor::ExtractSliceOp, tensor::InsertSliceOp,
          tensor::ExpandShapeOp, tensor::CollapseShapeOp, lm::LoadOp, lm::StoreOp>(op))
    return success(); // views need no command except the copies above

  if (auto launch = dyn_cast<kern::LaunchOp>(op)) {
    kern::KernelOp kernel = kernelFor(launch);
    auto [shape, isNew] = shapes.try_emplace(kernel);
    if (std::string reason; isNew && failed(shape->second = analyze(kernel, &reason)))
      return op->emitOpError("cannot be emitted: ") << reason;
    SmallVector<Value> args;
    for (Value input : launch.getInputs())
      args.push_back(slice(input));
    for (Value result : launch.getResults())
      args.push_back(slice(result));
    plan_ir::LaunchOp::create(b, loc, kernel.getSymName(), args, int64_t(launch.getInputs().size()),
                              shape->second->items, shape->second->chunk);
    return success();
  }
  auto planned = dyn_cast<PlannedOpInterface>(op);
  if (!planned)
    return op->emitOpError("has no command in a plan");
  planned.createCommand(
      b, [&](Value value) { return value ? slice(value) : Value(); }, scratchOf(op));
  return success();
}

FailureOr<Placer::Peak> Placer::run() {
  FailureOr<std::unique_ptr<BufferAssignment>> assigned =
      BufferAssignment::compute(function, symbols, target, reuse);
  if (failed(assigned))
    return failure();
  assignment = std::move(*assigned);

  PackingProblem problem;
  problem.alignment = kAlignment;
  SmallVector<unsigned> ids;
  for (unsigned id = 0; id < assignment->size(); ++id) {
    const Buffer &buffer = assignment->buffer(id);
    if (!buffer.variable.empty() || buffer.first > buffer.last)
      continue;
    problem.buffers.push_back({buffer.bytes, reuse ? buffer.first : 0, reuse ? buffer.last : 0});
    ids.push_back(id);
  }
  if (std::string fault = problem.check(); !fault.empty())
    return function.emitError("has an ill-formed packing problem: ") << fault;
  PackingSolution solution = pack(problem);
  if (std::string fault = solution.verify(problem); !fault.empty())
    return function.emitError("was packed wrongly: ") << fault;
  offsets.assign(assignment->size(), 0);
  for (auto [id, offset] : llvm::zip(ids, solution.offsets))
    offsets[id] = offset;

  b.setInsertionPointAfter(function);
  auto planned = plan_ir::FunctionOp::create(b, function.getLoc(), function.getSymName(),
                                             int64_t(solution.bytes));
  Block &commands = planned.getBody().emplaceBlock();
  b.setInsertionPointToStart(&commands);
  int64_t emitted = 0;
  for (Operation &op : function.getBody().front()) {
    commandOf.push_back(emitted);
    Operation *before = commands.empty() ? nullptr : &commands.back();
    if (failed(emit(&op)))
      return failure();
    Operation *made = before             ? before->getNextNode()
                      : commands.empty() ? nullptr
                                         : &commands.front();
    for (; made; made = made->getNextNode())
      if (!isa<plan_ir::SliceOp, plan_ir::VariableRefOp>(made)) {
        ++emitted;
        if (op.hasAttr("lm.backward"))
          made->setDiscardableAttr("lm.backward", b.getUnitAttr());
      }
  }
  commandOf.push_back(emitted);
  for (auto &[key, value] : slices)
    if (auto slice = value.getDefiningOp<plan_ir::SliceOp>()) {
      const Buffer &buffer = assignment->buffer(std::get<0>(key));
      slice.setFirst(uint64_t(commandOf[size_t(buffer.first)]));
      // The last command of the position is the op's own, after the copies that the op needs.
      slice.setLast(uint64_t(std::max(commandOf[size_t(buffer.first)],
                                      commandOf[size_t(buffer.last) + 1] - 1)));
    }
  return Peak{solution.bytes, problem.lowerBound()};
}

// Places state in the order of its declaration, members inside their storages. Returns the total
// bytes.
static FailureOr<uint64_t> placeState(ArrayRef<lm::VariableOp> variables) {
  uint64_t bytes = 0;
  llvm::StringMap<std::pair<uint64_t, RankedTensorType>> storages;
  for (lm::VariableOp variable : variables)
    if (!variable.getStorage()) {
      auto type = cast<RankedTensorType>(variable.getType());
      storages[variable.getSymName()] = {bytes, type};
      bytes = roundUp(bytes + byteSize(type));
    }
  for (lm::VariableOp variable : variables) {
    auto type = cast<RankedTensorType>(variable.getType());
    uint64_t offset = 0;
    if (std::optional<StringRef> storage = variable.getStorage()) {
      auto it = storages.find(*storage);
      if (it == storages.end())
        return variable.emitOpError("is in the storage ")
               << *storage << ", which is no variable outside of storages";
      auto [start, whole] = it->second;
      uint64_t inside = *variable.getStorageOffset() * type.getElementTypeBitWidth() / 8;
      if (type.getElementType() != whole.getElementType() ||
          inside + byteSize(type) > byteSize(whole))
        return variable.emitOpError("does not lie in its storage ") << *storage << " of " << whole;
      offset = start + inside;
    } else {
      offset = storages.lookup(variable.getSymName()).first;
    }
    OpBuilder b(variable);
    plan_ir::VariableOp::create(b, variable.getLoc(), variable.getSymName(), "state",
                                int64_t(offset), type, variable.getKind(),
                                variable.getInit(), variable.getWeightDecay(),
                                variable.getParameterAttr(), variable.getPartsAttr(),
                                variable.getAnonymous(), variable.getSettingAttr(),
                                variable.getStepValueAttr());
  }
  return bytes;
}

// Checks that a function does not use both a storage and its members: they are the same bytes, but
// the overlap would not be visible in the function.
static LogicalResult checkStorageUse(func::FuncOp function, SymbolTable &symbols) {
  llvm::StringMap<bool> byMember; // per storage: used through a member
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
      return op.emitOpError("uses ") << name << " where the function uses "
                                     << (member ? "its storage " : "a member of it, of storage ")
                                     << it->first() << " too";
  }
  return success();
}

namespace {
struct PlaceBuffersPass : lmc::impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  using PlaceBuffersPassBase::PlaceBuffersPassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    OpBuilder b(module);
    const Target *known = findTarget(target);
    if (!known) {
      auto names = llvm::map_range(targets(), [](const Target *each) { return each->name(); });
      module.emitError("there is no target '") << target << "': " << llvm::join(names, " or ");
      return signalPassFailure();
    }

    SmallVector<lm::VariableOp> variables(module.getOps<lm::VariableOp>());
    FailureOr<uint64_t> stateBytes = placeState(variables);
    if (failed(stateBytes))
      return signalPassFailure();
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal()) {
        function.emitError("has no body; a plan's functions are whole");
        return signalPassFailure();
      }
      if (failed(checkStorageUse(function, symbols)))
        return signalPassFailure();
    }

    Placer::Peak workspace;
    SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
    for (func::FuncOp function : functions) {
      FailureOr<Placer::Peak> peak = Placer(function, symbols, *known, reuse).run();
      if (failed(peak))
        return signalPassFailure();
      workspace.bytes = std::max(workspace.bytes, peak->bytes);
      workspace.lowerBound = std::max(workspace.lowerBound, peak->lowerBound);
    }
    b.setInsertionPointToStart(module.getBody());
    auto arena = [&](StringRef name, uint64_t bytes, uint64_t bound) {
      plan_ir::ArenaOp::create(b, module.getLoc(), name, int64_t(bytes), int64_t(kAlignment),
                               int64_t(bound));
    };
    arena("state", *stateBytes, *stateBytes);
    arena("workspace", workspace.bytes, workspace.lowerBound);

    // The check runs in every compile, and here, because only here both forms of a function exist.
    for (func::FuncOp function : functions)
      if (failed(checkAliasing(function, cast<plan_ir::FunctionOp>(function->getNextNode()))))
        return signalPassFailure();
    for (func::FuncOp function : functions)
      function.erase();
    for (lm::VariableOp variable : variables)
      variable.erase();
    // Erases kernels that are launched only as a variant.
    llvm::StringSet<> launched;
    module.walk([&](plan_ir::LaunchOp launch) { launched.insert(launch.getKernel()); });
    for (auto kernel : llvm::make_early_inc_range(module.getOps<kern::KernelOp>()))
      if (!launched.contains(kernel.getSymName()))
        symbols.erase(kernel);
  }
};
} // namespace
