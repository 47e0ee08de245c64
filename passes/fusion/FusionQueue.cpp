#include "passes/fusion/FusionQueue.h"

#include "passes/memory/OpCost.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

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
    : function(function), options(options), level(level), live(function),
      b(function.getContext()) {}

FusionQueue::~FusionQueue() {
  for (Operation *op : gone)
    op->destroy();
}

static bool isBackward(Operation *op) { return op->hasAttr("lm.backward"); }

// The most elements of what an op reads and makes: those of its loops.
static int64_t domainSize(Operation *op) {
  int64_t most = 0;
  for (Type type : llvm::concat<Type>(SmallVector<Type>(op->getOperandTypes()),
                                      SmallVector<Type>(op->getResultTypes())))
    most = std::max(most, cast<RankedTensorType>(type).getNumElements());
  return most;
}

// Both read all of one tensor that is as large as their loops; rows, weights and scalars
// in common are no reason to run two loops as one.
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
    return; // one would run far from where it is needed
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

void FusionQueue::record(const Candidate &candidate, kern::Hero hero, StringRef refusal) {
  auto source = [&](Operation *op) {
    return b.getStringAttr(describe(level.partOf(op)->sources));
  };
  double seconds =
      double(candidate.savedBytes) / options.bytesPerSecond + options.launchSeconds;
  SmallVector<NamedAttribute> entry{
      b.getNamedAttr("outcome", b.getStringAttr(refusal.empty() ? "formed" : "refused")),
      b.getNamedAttr("kind", b.getStringAttr(candidate.siblings ? "siblings" : "producer")),
      b.getNamedAttr("function", function.getSymNameAttr()),
      b.getNamedAttr("producer", source(candidate.first)),
      b.getNamedAttr("consumer", source(candidate.second)),
      b.getNamedAttr("bytes", b.getI64IntegerAttr(int64_t(candidate.savedBytes))),
      b.getNamedAttr("seconds", b.getF64FloatAttr(seconds))};
  if (refusal.empty())
    entry.push_back(b.getNamedAttr("hero", b.getStringAttr(kern::stringifyHero(hero))));
  else
    entry.push_back(b.getNamedAttr("reason", b.getStringAttr(refusal)));
  ++recorded[b.getDictionaryAttr(entry)];
}

SmallVector<Attribute> FusionQueue::report() const {
  SmallVector<Attribute> entries;
  Builder builder(function.getContext());
  for (auto [entry, times] : recorded) {
    NamedAttrList named(cast<DictionaryAttr>(entry));
    named.set("times", builder.getI64IntegerAttr(times));
    entries.push_back(named.getDictionary(function.getContext()));
  }
  return entries;
}

// The ops between the two that need what the first makes, in order: they move behind the
// merged op. None when the second needs one of them, or one may not move.
std::optional<SmallVector<Operation *>>
FusionQueue::readersBetween(Operation *first, Operation *second, std::string *reason) const {
  llvm::SetVector<Operation *> readers;
  auto reads = [&](Operation *op, bool second) {
    return llvm::any_of(op->getOperands(), [&](Value operand) {
      Operation *maker = operand.getDefiningOp();
      return maker && (readers.contains(maker) || (!second && maker == first));
    });
  };
  for (Operation *op = first->getNextNode(); op != second; op = op->getNextNode())
    if (reads(op, false)) {
      if (!isMemoryEffectFree(op) || (isBackward(second) && !isBackward(op))) {
        *reason = "'" + op->getName().getStringRef().str() +
                  "' between them reads the first one's result and may not move";
        return std::nullopt;
      }
      readers.insert(op);
    }
  if (reads(second, true)) {
    *reason = "the second one also needs what another op makes of the first one's result";
    return std::nullopt;
  }
  return readers.takeVector();
}

bool FusionQueue::keepsPeak(const Candidate &candidate, ArrayRef<Operation *> moved,
                            std::string *reason) {
  std::vector<Step> before, after;
  for (Operation &op : function.getBody().front()) {
    before.push_back({&op});
    if (&op == candidate.second) {
      after.push_back({candidate.first, candidate.second});
      for (Operation *reader : moved)
        after.push_back({reader});
    } else if (&op != candidate.first && !llvm::is_contained(moved, &op)) {
      after.push_back({&op});
    }
  }
  uint64_t low = live.peak(before), high = live.peak(after);
  if (high <= low)
    return true;
  *reason = llvm::formatv("raises the peak of live bytes from {0} to {1}", low, high);
  return false;
}

bool FusionQueue::tryMerge(const Candidate &candidate) {
  FusionPart first = *level.partOf(candidate.first), second = *level.partOf(candidate.second);
  std::string reason;
  auto refuse = [&] {
    record(candidate, second.hero, reason);
    return false;
  };
  std::optional<MergePlan> plan = planMerge(first, second, &reason);
  if (!plan)
    return refuse();
  std::optional<SmallVector<Operation *>> moved = readersBetween(first.op, second.op, &reason);
  if (!moved || !keepsPeak(candidate, *moved, &reason))
    return refuse();
  b.setInsertionPoint(second.op);
  Operation *merged = level.create(b, *plan, first, second, &reason);
  if (!merged)
    return refuse();
  record(candidate, plan->hero, "");
  merged->setDiscardableAttrs(second.op->getDiscardableAttrDictionary());
  Operation *place = merged;
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
  return true;
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
      continue; // merged with something else since
    if (candidate.second->isBeforeInBlock(candidate.first)) // siblings, one of which moved
      std::swap(candidate.first, candidate.second);
    if (uint64_t saved = savedBytes(candidate.first, candidate.second);
        saved != candidate.savedBytes) {
      candidate.savedBytes = saved; // their other readers are other ops by now
      queue.push(candidate);
      continue;
    }
    if (seen.insert({candidate.first, candidate.second}).second)
      formed += tryMerge(candidate);
  }
  return formed;
}
