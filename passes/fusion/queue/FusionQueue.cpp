#include "passes/fusion/queue/FusionQueue.h"

#include "passes/memory/OpCost.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;

FailureOr<FusionOptions> lmc::fusionOptions(ModuleOp module, ArrayRef<std::string> disabled,
                                            double bytesPerSecond, double launchSeconds) {
  for (const std::string &kind : disabled)
    if (!llvm::is_contained(kFusionKinds, kind))
      return module.emitError("has no kind of fusion '")
             << kind << "'; choose " << llvm::join(ArrayRef(kFusionKinds), ", ");
  auto allows = [&](StringRef kind) { return !llvm::is_contained(disabled, kind); };
  return FusionOptions{allows("producer"), allows("siblings"), allows("layers"), bytesPerSecond,
                       launchSeconds};
}

FusionQueue::FusionQueue(func::FuncOp function, const FusionOptions &options, FusionLevel level)
    : function(function), options(options), level(level), live(function), b(function.getContext()) {
  std::vector<Step> steps;
  for (Operation &op : function.getBody().front())
    steps.push_back({&op});
  std::vector<uint64_t> bytes = live.bytesAt(steps);
  for (auto [step, held] : llvm::zip_equal(steps, bytes))
    liveBound[step.front()] = held;
  peak = std::ranges::max(bytes);
}

FusionQueue::~FusionQueue() {
  for (Operation *op : gone)
    op->destroy();
}

// The op's loops have as many iterations as its largest tensor has elements. Returns this number.
static int64_t domainSize(Operation *op) {
  int64_t most = 0;
  for (Type type : llvm::concat<Type>(SmallVector<Type>(op->getOperandTypes()),
                                      SmallVector<Type>(op->getResultTypes())))
    most = std::max(most, cast<RankedTensorType>(type).getNumElements());
  return most;
}

// Returns true if both ops read one whole tensor that has as many elements as their loops have
// iterations. Sharing a smaller tensor (a row, weight or scalar) is no reason to merge loops.
static bool areSiblings(Operation *first, Operation *second) {
  int64_t size = domainSize(first);
  if (size != domainSize(second))
    return false;
  return llvm::any_of(first->getOperands(), [&](Value input) {
    return cast<RankedTensorType>(input.getType()).getNumElements() == size &&
           llvm::is_contained(second->getOperands(), input);
  });
}

void FusionQueue::push(Operation *first, Operation *second) {
  if (first == second || first->getBlock() != second->getBlock())
    return;
  if (second->isBeforeInBlock(first))
    std::swap(first, second);
  bool feeds = llvm::is_contained(first->getUsers(), second);
  if (feeds ? !options.producers : !options.siblings || !areSiblings(first, second))
    return;
  if (!feeds && isBackward(first) != isBackward(second))
    return; // a merge would move one op far from its readers
  queue.push({first, second, !feeds, savedBytes(first, second), pushed++});
}

void FusionQueue::pushPairsOf(Operation *op) {
  llvm::SetVector<Operation *> others;
  for (Value input : op->getOperands()) {
    if (Operation *maker = input.getDefiningOp())
      others.insert(maker);
    if (cast<RankedTensorType>(input.getType()).getRank() > 0)
      others.insert(input.user_begin(), input.user_end());
  }
  others.insert(op->user_begin(), op->user_end());
  for (Operation *other : others)
    if (level.partOf(other))
      push(op, other);
}

void FusionQueue::record(const Candidate &candidate, std::optional<kern::Hero> hero,
                         StringRef refusal) {
  auto source = [&](Operation *op) { return describe(level.partOf(op)->sources); };
  add(decisions, {candidate.siblings, function.getSymName().str(), source(candidate.first),
                  source(candidate.second), hero ? kern::stringifyHero(*hero).str() : "",
                  refusal.str(), candidate.savedBytes,
                  double(candidate.savedBytes) / options.bytesPerSecond + options.launchSeconds});
}

// Returns the ops between `first` and `second` that depend on `first`, in order. They must move
// behind the merged op. Fails if `second` depends on one of them, or if one may not move.
llvm::Expected<SmallVector<Operation *>> FusionQueue::readersBetween(Operation *first,
                                                                     Operation *second) const {
  llvm::SetVector<Operation *> readers;
  auto addReadersOf = [&](Operation *op) {
    for (Operation *reader : op->getUsers())
      if (reader != second && reader->isBeforeInBlock(second))
        readers.insert(reader);
  };
  addReadersOf(first);
  for (size_t next = 0; next < readers.size(); ++next) {
    Operation *op = readers[next];
    if (!isMemoryEffectFree(op) ||
        (isBackward(second) && isa<StepOpInterface>(op) && !isBackward(op)))
      return llvm::createStringError(
          "'" + op->getName().getStringRef() +
          "' between them reads the first one's result and may not move");
    if (llvm::is_contained(op->getUsers(), second))
      return llvm::createStringError(
          "the second one also needs what another op makes of the first one's result");
    addReadersOf(op);
  }
  SmallVector<Operation *> inOrder = readers.takeVector();
  llvm::sort(inOrder, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  return inOrder;
}

// Returns an upper bound of the live bytes that merging `first` and `second` adds at any op between
// them. The bound is the bytes of all values that stay live longer or become live earlier.
static uint64_t mostAdded(Operation *first, Operation *second, ArrayRef<Operation *> moved) {
  uint64_t bytes = 0;
  auto add = [&](ValueRange values) {
    for (Value value : values)
      bytes += bytesOf(value);
  };
  add(first->getOperands());
  for (Operation *op : moved)
    add(op->getOperands());
  add(first->getResults());
  add(second->getResults());
  return bytes;
}

// Fails if the merge raises the live bytes above the function's peak before any merge. Computes the
// exact live bytes only if their upper bound exceeds this peak.
llvm::Error FusionQueue::keepPeak(const Candidate &candidate, ArrayRef<Operation *> moved) {
  Operation *first = candidate.first, *second = candidate.second;
  uint64_t added = mostAdded(first, second, moved), highest = 0;
  for (Operation *op = first; op != second->getNextNode(); op = op->getNextNode())
    highest = std::max(highest, liveBound.lookup(op) + added);
  if (highest > peak) {
    std::vector<Step> steps;
    for (Operation &op : function.getBody().front()) {
      if (&op == second) {
        steps.push_back({first, second});
        for (Operation *reader : moved)
          steps.push_back({reader});
      } else if (&op != first && !llvm::is_contained(moved, &op)) {
        steps.push_back({&op});
      }
    }
    uint64_t after = std::ranges::max(live.bytesAt(steps));
    if (after > peak)
      return llvm::createStringError(
          llvm::formatv("raises the peak of live bytes from {0} to {1}", peak, after).str());
    highest = peak;
  }
  for (Operation *op = first; op != second->getNextNode(); op = op->getNextNode())
    liveBound[op] = highest;
  return llvm::Error::success();
}

// Merges the two ops. The error says why they may not merge.
llvm::Error FusionQueue::merge(const Candidate &candidate) {
  FusionPart first = *level.partOf(candidate.first), second = *level.partOf(candidate.second);
  llvm::Expected<MergePlan> plan = planMerge(first, second);
  if (!plan)
    return plan.takeError();
  llvm::Expected<SmallVector<Operation *>> moved = readersBetween(first.op, second.op);
  if (!moved)
    return moved.takeError();
  if (llvm::Error error = keepPeak(candidate, *moved))
    return error;
  b.setInsertionPoint(second.op);
  llvm::Expected<Operation *> created = level.create(b, *plan, first, second);
  if (!created)
    return created.takeError();
  Operation *merged = *created, *place = merged;
  record(candidate, plan->hero, "");
  liveBound[merged] = liveBound.lookup(second.op);
  setStep(merged, second.op);
  for (Operation *reader : *moved) {
    reader->moveAfter(place);
    place = reader;
  }
  for (auto [value, replacement] : llvm::zip_equal(plan->results, merged->getResults()))
    value.replaceAllUsesWith(replacement);
  for (Operation *op : {first.op, second.op}) {
    op->remove();
    gone.push_back(op);
  }
  for (Operation *op : {second.op, first.op})
    op->dropAllReferences();
  pushPairsOf(merged);
  return llvm::Error::success();
}

unsigned FusionQueue::run() {
  unsigned formed = 0;
  llvm::DenseSet<std::pair<Operation *, Operation *>> seen;
  SmallVector<Operation *> parts;
  for (Operation &op : function.getBody().front())
    if (level.partOf(&op))
      parts.push_back(&op);
  for (Operation *op : parts)
    pushPairsOf(op);
  while (!queue.empty()) {
    Candidate candidate = queue.top();
    queue.pop();
    if (!candidate.first->getBlock() || !candidate.second->getBlock())
      continue;                                             // already merged with another op
    if (candidate.second->isBeforeInBlock(candidate.first)) // siblings may have been reordered
      std::swap(candidate.first, candidate.second);
    if (uint64_t saved = savedBytes(candidate.first, candidate.second);
        saved != candidate.savedBytes) {
      candidate.savedBytes = saved; // earlier merges have changed which ops read the same values
      queue.push(candidate);
      continue;
    }
    if (!seen.insert({candidate.first, candidate.second}).second)
      continue;
    if (llvm::Error refusal = merge(candidate))
      record(candidate, std::nullopt, llvm::toString(std::move(refusal)));
    else
      ++formed;
  }
  return formed;
}
