// Defines which ops the IR may contain at the end of each phase.
#include "compiler/phases/Phases.h"

#include "compiler/phases/Passes.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/StringMap.h"

namespace lmc {
#define GEN_PASS_DEF_VERIFYLEVELPASS
#include "compiler/phases/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// The ops that may exist after a phase.
struct Level {
  Phase phase;
  const char *holds; // a description, for error messages
  // The allowed dialects ("kern") and single ops ("lm.load"). All other ops are errors.
  std::vector<StringRef> allowed;
  // Single ops that are errors, although `allowed` has their dialect.
  std::vector<StringRef> forbidden = {};
};

} // namespace

static const Level *levelAfter(Phase phase) {
  static const std::vector<StringRef> views = {"tensor.empty", "tensor.extract_slice",
                                               "tensor.insert_slice", "tensor.expand_shape",
                                               "tensor.collapse_shape"};
  auto launches = [](std::vector<StringRef> more) {
    llvm::append_range(more, views);
    more.insert(more.end(), {"kern", "dist", "lm.variable", "lm.load", "lm.store"});
    return more;
  };
  std::vector<StringRef> distributed = views;
  distributed.insert(distributed.end(), {"func", "lm", "dist"});
  static const Level levels[] = {
      {Phase::Model, "ops of the model in functions", {"func", "lm"}},
      {Phase::Autodiff, "ops of the model and collectives in functions", distributed},
      {Phase::Distribute, "ops of the model and collectives in functions", distributed},
      {Phase::Memory, "ops of the model and collectives in functions", distributed},
      {Phase::Fusion,
       "launches of kernels, library calls, views of tensors, loads and stores in functions",
       launches({"func"}),
       {"kern.fusion"}},
      {Phase::Schedule,
       "launches of kernels, library calls, views of tensors, loads and stores in functions that "
       "call none",
       launches({"func"}),
       {"kern.fusion", "func.call"}},
      {Phase::Buffers,
       "commands on slices in plan.functions, and kernels",
       {"plan", "kern.kernel", "dist.mesh"}},
  };
  for (const Level &level : levels)
    if (level.phase == phase)
      return &level;
  return nullptr;
}

// Returns the number of bytes from the start to the end of `rows` rows whose starts are `pitch`
// bytes apart. A pitch of 0 means that rows are adjacent.
static uint64_t extentOf(RankedTensorType type, uint64_t rows, uint64_t pitch) {
  uint64_t bytes = byteSize(type);
  return pitch == 0 || rows == 0 ? bytes : (rows - 1) * pitch + bytes / rows;
}

// Checks that slices and variables lie in their arenas, and VariableRefOps in their variables.
static LogicalResult verifyPlaces(ModuleOp module) {
  llvm::StringMap<uint64_t> arenas, variables; // bytes by name
  for (auto arena : module.getOps<plan_ir::ArenaOp>())
    arenas[arena.getSymName()] = arena.getBytes();
  for (auto variable : module.getOps<plan_ir::VariableOp>())
    variables[variable.getSymName()] = byteSize(cast<RankedTensorType>(variable.getType()));
  auto inside = [](Operation *op, const llvm::StringMap<uint64_t> &places, StringRef place,
                   uint64_t offset, uint64_t bytes) -> LogicalResult {
    auto found = places.find(place);
    if (found == places.end())
      return op->emitOpError("lies in @") << place << ", which is not there";
    if (offset > found->second || bytes > found->second - offset)
      return op->emitOpError("takes ") << bytes << " bytes from byte " << offset << " of @"
                                       << place << ", which has " << found->second;
    return success();
  };
  WalkResult walked = module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    LogicalResult placed = success();
    if (isa<kern::KernelOp>(op))
      return WalkResult::skip();
    if (auto variable = dyn_cast<plan_ir::VariableOp>(op))
      placed = inside(op, arenas, variable.getArena(), variable.getOffset(),
                      variables.lookup(variable.getSymName()));
    else if (auto slice = dyn_cast<plan_ir::SliceOp>(op))
      placed = inside(op, arenas, slice.getArena(), slice.getOffset(),
                      extentOf(slice.getType().getContent(), slice.getRows(), slice.getPitch()));
    else if (auto ref = dyn_cast<plan_ir::VariableRefOp>(op))
      placed = inside(op, variables, ref.getVariable(), ref.getOffset(),
                      extentOf(ref.getType().getContent(), ref.getRows(), ref.getPitch()));
    return failed(placed) ? WalkResult::interrupt() : WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

// Checks that every launch has the inputs and results of its kernel.
static LogicalResult verifyLaunches(ModuleOp module) {
  llvm::StringMap<kern::KernelOp> kernels;
  for (auto kernel : module.getOps<kern::KernelOp>())
    kernels[kernel.getSymName()] = kernel;
  for (auto function : module.getOps<plan_ir::FunctionOp>())
    for (auto launch : function.getBody().getOps<plan_ir::LaunchOp>()) {
      kern::KernelOp kernel = kernels.lookup(launch.getKernel());
      if (!kernel)
        return launch.emitOpError("runs @") << launch.getKernel() << ", which is not there";
      Block &body = kernel.getBody().front();
      SmallVector<Type> expected(body.getArgumentTypes());
      size_t inputs = expected.size();
      llvm::append_range(expected, body.getTerminator()->getOperandTypes());
      auto found = llvm::map_range(launch.getArgs(), [](Value slice) -> Type {
        return cast<plan_ir::SliceType>(slice.getType()).getContent();
      });
      if (launch.getInputs() != inputs || !llvm::equal(expected, found))
        return launch.emitOpError("has other inputs and results than @") << launch.getKernel();
    }
  return success();
}

LogicalResult lmc::verifyLevel(Phase phase, ModuleOp module) {
  const Level *level = levelAfter(phase);
  if (!level)
    return success();
  auto isIn = [](const std::vector<StringRef> &names, Operation *op) {
    return llvm::is_contained(names, op->getName().getStringRef()) ||
           llvm::is_contained(names, op->getName().getDialectNamespace());
  };
  bool isClosed = true;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op == module)
      return WalkResult::advance();
    if (!isIn(level->allowed, op) || isIn(level->forbidden, op)) {
      op->emitOpError("has no place after the phase ")
          << phaseName(phase) << ", which leaves " << level->holds;
      isClosed = false;
      return WalkResult::skip();
    }
    return isa<kern::KernelOp>(op) ? WalkResult::skip() : WalkResult::advance();
  });
  if (!isClosed || phase != Phase::Buffers)
    return success(isClosed);
  return failure(failed(verifyPlaces(module)) || failed(verifyLaunches(module)));
}

namespace {
struct VerifyLevelPass : lmc::impl::VerifyLevelPassBase<VerifyLevelPass> {
  using VerifyLevelPassBase::VerifyLevelPassBase;
  void runOnOperation() override {
    std::optional<Phase> known = parsePhase(phase);
    if (!known) {
      getOperation().emitError("there is no phase '") << phase << "'";
      return signalPassFailure();
    }
    if (failed(verifyLevel(*known, getOperation())))
      signalPassFailure();
  }
};
} // namespace
