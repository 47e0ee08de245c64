// plan-pack-arenas: gives every variable its offset in @state and every buffer its offset in
// @workspace. Variables lie in the order of their declaration. The buffers of a function are packed
// by their live ranges (compiler/algorithms/Packing.h).
#include "compiler/algorithms/Packing.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/Lm.h"
#include "dialects/plan/Plan.h"
#include "passes/buffers/BufferAssignment.h"
#include "passes/buffers/Passes.h"
#include "passes/buffers/PlacedBuffers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_PACKARENASPASS
#include "passes/buffers/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// The alignment of variables in bytes: a cache line, which is also the widest vector.
static constexpr uint64_t kStateAlignment = 64;

// Places state in the order of its declaration, and members inside their storages. Returns the
// number of bytes that all state takes.
static FailureOr<uint64_t> placeState(ArrayRef<lm::VariableOp> variables) {
  uint64_t bytes = 0;
  llvm::StringMap<std::pair<uint64_t, RankedTensorType>> storages;
  for (lm::VariableOp variable : variables)
    if (!variable.getStorage()) {
      auto type = cast<RankedTensorType>(variable.getType());
      storages[variable.getSymName()] = {bytes, type};
      bytes = llvm::alignTo(bytes + byteSize(type), kStateAlignment);
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
    variable->setAttr(kOffset, Builder(variable.getContext()).getI64IntegerAttr(int64_t(offset)));
  }
  return bytes;
}

namespace {

struct PackArenasPass : lmc::impl::PackArenasPassBase<PackArenasPass> {
  using PackArenasPassBase::PackArenasPassBase;
  void runOnOperation() override;

private:
  LogicalResult packFunction(func::FuncOp function);

  // Both are maxima over all functions, which run one after the other in the same bytes.
  uint64_t workspaceBytes = 0, lowerBound = 0;
};

} // namespace

LogicalResult PackArenasPass::packFunction(func::FuncOp function) {
  FailureOr<BufferAssignment *> found = getAnalysis<BufferAssignments>().of(function);
  if (failed(found))
    return failure();
  const BufferAssignment *assignment = *found;
  PackingProblem problem;
  problem.alignment = alignment;
  SmallVector<size_t> packed;
  for (auto [id, buffer] : llvm::enumerate(assignment->buffers)) {
    if (!buffer.variable.empty() || buffer.first > buffer.last)
      continue;
    problem.buffers.push_back({buffer.bytes, reuse ? buffer.first : 0, reuse ? buffer.last : 0});
    packed.push_back(id);
  }
  if (Result<void> sound = problem.check(); !sound)
    return function.emitError("has an ill-formed packing problem: ") << sound.error().message;
  const PackingSolution solution = pack(problem);
  if (Result<void> right = solution.verify(problem); !right)
    return function.emitError("was packed wrongly: ") << right.error().message;
  SmallVector<int64_t> offsets(assignment->buffers.size(), 0);
  for (auto [id, offset] : llvm::zip(packed, solution.offsets))
    offsets[id] = int64_t(offset);
  Builder b(&getContext());
  function->setAttr(kOffsets, b.getDenseI64ArrayAttr(offsets));
  function->setAttr(kPeakBytes, b.getI64IntegerAttr(int64_t(solution.bytes)));
  workspaceBytes = std::max(workspaceBytes, uint64_t(solution.bytes));
  lowerBound = std::max(lowerBound, uint64_t(problem.lowerBound()));
  return success();
}

void PackArenasPass::runOnOperation() {
  ModuleOp module = getOperation();
  FailureOr<uint64_t> stateBytes = placeState(llvm::to_vector(module.getOps<lm::VariableOp>()));
  if (failed(stateBytes))
    return signalPassFailure();
  workspaceBytes = lowerBound = 0;
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(packFunction(function)))
      return signalPassFailure();
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  auto arena = [&](StringRef name, uint64_t bytes, uint64_t alignment, uint64_t bound) {
    plan_ir::ArenaOp::create(b, module.getLoc(), name, int64_t(bytes), int64_t(alignment),
                             int64_t(bound));
  };
  arena("state", *stateBytes, kStateAlignment, *stateBytes);
  arena("workspace", workspaceBytes, alignment, lowerBound);
  markAnalysesPreserved<BufferAssignments>();
}
