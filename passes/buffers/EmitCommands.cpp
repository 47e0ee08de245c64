// plan-emit-commands: turns each op into a command on slices at fixed offsets. Passes.td shows an
// example.
#include "passes/buffers/Passes.h"

#include "compiler/kernels/Hero.h"
#include "dialects/interfaces/LocationName.h"
#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"
#include "dialects/plan/Plan.h"
#include "passes/buffers/BufferAssignment.h"
#include "passes/buffers/PlacedBuffers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <vector>

namespace lmc {
#define GEN_PASS_DEF_EMITCOMMANDSPASS
#include "passes/buffers/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;

namespace {

// Returns the op that says to which pass (forward or backward) and layer the commands of `op`
// belong, or null if there is none. The commands of a view are copies. They belong to the pass and
// layer of the op that computes the view's first operand.
StepOpInterface stepOf(Operation *op) {
  while (op && !isa<StepOpInterface>(op))
    op = isa<tensor::TensorDialect>(op->getDialect()) && op->getNumOperands()
             ? op->getOperand(0).getDefiningOp()
             : nullptr;
  return dyn_cast_if_present<StepOpInterface>(op);
}

LogicalResult emitVariable(lm::VariableOp variable) {
  auto offset = variable->getAttrOfType<IntegerAttr>(kOffset);
  if (!offset)
    return variable.emitOpError("has no place; plan-pack-arenas runs first");
  OpBuilder b(variable);
  plan_ir::VariableOp::create(
      b, variable.getLoc(), variable.getSymName(), "state", offset.getInt(), variable.getType(),
      variable.getKind(), variable.getInit(), variable.getWeightDecay(),
      variable.getParameterAttr(), variable.getPartsAttr(), variable.getAnonymous(),
      variable.getSettingAttr(), variable.getStepValueAttr(), variable.getShardsAttr(),
      variable.getShardedAttr(), variable.getGroupAttr(), variable.getGroups());
  return success();
}

class CommandEmitter {
public:
  // Facts about kernels. All functions of a module share them.
  struct Kernels {
    // The variant of a kernel. Key: the kernel's name, and its arguments' pitches in elements.
    std::map<std::pair<std::string, std::vector<int64_t>>, kern::KernelOp> variants;
    llvm::DenseMap<Operation *, KernelShape> shapes; // of the kernels launched so far
  };

  CommandEmitter(func::FuncOp function, SymbolTable &symbols, Kernels &kernels)
      : function(function), symbols(symbols), kernels(kernels), b(function.getContext()) {}

  // Appends after `function` its plan.function. `assigned` has the buffers of `function`.
  LogicalResult run(BufferAssignment assigned) {
    assignment = std::move(assigned);
    auto placed = function->getAttrOfType<DenseI64ArrayAttr>(kOffsets);
    auto peakBytes = function->getAttrOfType<IntegerAttr>(kPeakBytes);
    if (!placed || !peakBytes || placed.size() != int64_t(assignment.buffers.size()))
      return function.emitError("has no places for its buffers; plan-pack-arenas runs first");
    offsets = placed;

    b.setInsertionPointAfter(function);
    auto planned = plan_ir::FunctionOp::create(b, function.getLoc(), function.getSymName(),
                                               peakBytes.getInt());
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
      StepOpInterface step = stepOf(&op);
      for (; made; made = made->getNextNode())
        if (isa<CommandOpInterface>(made)) {
          ++emitted;
          if (step)
            setStep(made, step);
        }
    }
    commandOf.push_back(emitted);
    for (auto &[key, value] : slices)
      if (auto slice = value.getDefiningOp<plan_ir::SliceOp>()) {
        const Buffer &buffer = assignment.buffers[std::get<0>(key)];
        slice.setFirst(uint64_t(commandOf[size_t(buffer.first)]));
        // At each position, the copies for the op come first. The op's own command is the last.
        slice.setLast(uint64_t(
            std::max(commandOf[size_t(buffer.first)], commandOf[size_t(buffer.last) + 1] - 1)));
      }
    return success();
  }

private:
  // The slice gets the name of the op `source`. If `source` is null, the slice has no name.
  Value slice(const BufferView &view, RankedTensorType type, Operation *source) {
    auto sliceType = plan_ir::SliceType::get(b.getContext(), type);
    const Buffer &buffer = assignment.buffers[view.buffer];
    Value &known = slices[{view.buffer, view.offset, view.rows, view.pitch, type}];
    if (known)
      return known;
    if (!buffer.variable.empty())
      return known =
                 plan_ir::VariableRefOp::create(b, function.getLoc(), sliceType, buffer.variable,
                                                view.offset, view.rows, view.pitch);
    return known = plan_ir::SliceOp::create(b, function.getLoc(), sliceType, "workspace",
                                            offsets[view.buffer] + view.offset, buffer.category,
                                            source ? nameOf(source->getLoc()) : "", 0, 0, view.rows,
                                            view.pitch);
  }

  Value slice(Value value) {
    return slice(assignment.view(value), cast<RankedTensorType>(value.getType()),
                 value.getDefiningOp());
  }
  Value scratchOf(Operation *op) {
    auto it = assignment.scratch.find(op);
    return it == assignment.scratch.end() ? Value()
                                          : slice({it->second.buffer, 0}, it->second.type, op);
  }

  LogicalResult emit(Operation *op) {
    Location loc = op->getLoc();
    for (const auto &copy : assignment.copiesBefore(op))
      plan_ir::CopyOp::create(b, loc, slice(copy.from, copy.type, op),
                              slice(copy.to, copy.type, op));
    if (isa<func::ReturnOp, tensor::EmptyOp, tensor::ExtractSliceOp, tensor::InsertSliceOp,
            tensor::ExpandShapeOp, tensor::CollapseShapeOp, lm::LoadOp, lm::StoreOp>(op))
      return success(); // views need no command except the copies above

    if (auto launch = dyn_cast<kern::LaunchOp>(op)) {
      kern::KernelOp kernel = kernelFor(launch);
      auto [shape, isNew] = kernels.shapes.try_emplace(kernel);
      if (isNew) {
        llvm::Expected<KernelShape> analyzed = analyze(kernel);
        if (!analyzed)
          return op->emitOpError("cannot be emitted: ") << llvm::toString(analyzed.takeError());
        shape->second = *analyzed;
      }
      SmallVector<Value> args;
      for (const CommandOperand &operand : launch.getCommandOperands())
        args.push_back(slice(operand.value));
      plan_ir::LaunchOp::create(b, loc, kernel.getSymName(), args,
                                int64_t(launch.getInputs().size()), shape->second.items,
                                shape->second.chunk);
      return success();
    }
    auto planned = dyn_cast<PlannedOpInterface>(op);
    if (!planned)
      return op->emitOpError("has no command in a plan");
    planned.createCommand(
        b, [&](Value value) { return value ? slice(value) : Value(); }, scratchOf(op));
    return success();
  }

  // Returns the variant of the launch's kernel for the layouts of its arguments.
  kern::KernelOp kernelFor(kern::LaunchOp launch) {
    auto kernel = symbols.lookup<kern::KernelOp>(launch.getKernel());
    std::vector<int64_t> rows, pitches;
    for (const CommandOperand &operand : launch.getCommandOperands()) {
      BufferView view = assignment.view(operand.value);
      auto type = cast<RankedTensorType>(operand.value.getType());
      rows.push_back(view.rows);
      pitches.push_back(view.pitch * 8 / int64_t(type.getElementTypeBitWidth()));
    }
    if (llvm::all_of(pitches, [](int64_t pitch) { return pitch == 0; }))
      return kernel;
    kern::KernelOp &variant = kernels.variants[{kernel.getSymName().str(), pitches}];
    if (variant)
      return variant;
    variant = lm::cloneAs(
        b, kernel, kern::unusedName(symbols, (kernel.getSymName() + "_strided").str()), symbols);
    variant.setArgRows(rows);
    variant.setArgPitches(pitches);
    return variant;
  }

  func::FuncOp function;
  SymbolTable &symbols;
  Kernels &kernels;
  OpBuilder b;
  BufferAssignment assignment;
  ArrayRef<int64_t> offsets; // offset of each temporary buffer

  // Each view has one slice, whose live range is known only after all commands are emitted.
  llvm::MapVector<std::tuple<unsigned, int64_t, int64_t, int64_t, Type>, Value> slices;
  SmallVector<int64_t> commandOf; // per position in the function, the number of commands before it
};

struct EmitCommandsPass : lmc::impl::EmitCommandsPassBase<EmitCommandsPass> {
  using EmitCommandsPassBase::EmitCommandsPassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    const auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
    const auto variables = llvm::to_vector(module.getOps<lm::VariableOp>());
    const auto kernels = llvm::to_vector(module.getOps<kern::KernelOp>());
    // plan-check-aliasing compares the commands with the functions on tensors, kept in `tensors`.
    ModuleOp tensors;
    if (keepTensors) {
      OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
      tensors = ModuleOp::create(b, module.getLoc(), kTensors);
      b.setInsertionPointToEnd(tensors.getBody());
      for (kern::KernelOp kernel : kernels)
        b.clone(*kernel);
    }
    auto giveUp = [&](Operation *op) {
      if (tensors)
        op->moveBefore(tensors.getBody(), tensors.getBody()->end());
      else
        op->erase();
    };

    for (lm::VariableOp variable : variables)
      if (failed(emitVariable(variable)))
        return signalPassFailure();
    CommandEmitter::Kernels shared;
    auto &assignments = getAnalysis<BufferAssignments>();
    for (func::FuncOp function : functions) {
      FailureOr<BufferAssignment *> assigned = assignments.of(function);
      if (failed(assigned) ||
          failed(CommandEmitter(function, symbols, shared).run(std::move(**assigned))))
        return signalPassFailure();
    }
    for (lm::VariableOp variable : variables)
      giveUp(variable);
    for (func::FuncOp function : functions)
      giveUp(function);
    // Erases unused kernels. Often all launches of a kernel use variants for strided operands.
    llvm::StringSet<> launched;
    for (auto function : module.getOps<plan_ir::FunctionOp>())
      for (auto launch : function.getBody().getOps<plan_ir::LaunchOp>())
        launched.insert(launch.getKernel());
    for (kern::KernelOp kernel : kernels)
      if (!launched.contains(kernel.getSymName()))
        symbols.erase(kernel);
  }
};
} // namespace
