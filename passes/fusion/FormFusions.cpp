// kern-form-fusions: a fusion moves into the one that consumes its result.
//
//   %s = kern.fusion elementwise (x, y)  { x + y }        %s, %n = kern.fusion row_reduction
//   %n = kern.fusion row_reduction (s)   { norm(s) }  =>        (x, y) { s = x + y; norm(s) }
//
// so that %s is not read back, and not even written when nobody else needs it.
#include "passes/fusion/Passes.h"

#include "dialects/kern/Kern.h"
#include "passes/codegen/Hero.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_FORMFUSIONSPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

static uint64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return uint64_t(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
}

static std::string describe(kern::FusionOp fusion) {
  std::string text;
  if (ArrayAttr sources = fusion.getSourceOpsAttr())
    for (auto source : sources.getAsRange<StringAttr>())
      text += (text.empty() ? "" : "+") + source.getValue().str();
  return text;
}

// The loop structure that could hold both; none when both insist on their own.
static std::optional<kern::Hero> commonHero(kern::Hero producer, kern::Hero consumer) {
  if (producer == consumer || producer == kern::Hero::Elementwise)
    return consumer;
  if (consumer == kern::Hero::Elementwise)
    return producer;
  return std::nullopt;
}

namespace {

struct Candidate {
  kern::FusionOp producer, consumer;
  uint64_t savedBytes;
};

class FusionFormer {
public:
  explicit FusionFormer(func::FuncOp function) : function(function), b(function.getContext()) {}

  // Merges until nothing more may; returns how many merges there were.
  unsigned run();

  SmallVector<Attribute> report;

private:
  SmallVector<Candidate> candidates();
  bool tryMerge(const Candidate &candidate);
  void record(StringRef outcome, const Candidate &candidate, StringRef reason);

  func::FuncOp function;
  OpBuilder b;
  llvm::DenseSet<std::pair<Operation *, Operation *>> refused;
};

} // namespace

void FusionFormer::record(StringRef outcome, const Candidate &candidate, StringRef reason) {
  SmallVector<NamedAttribute> entry{
      b.getNamedAttr("outcome", b.getStringAttr(outcome)),
      b.getNamedAttr("function", function.getSymNameAttr()),
      b.getNamedAttr("producer", b.getStringAttr(describe(candidate.producer))),
      b.getNamedAttr("consumer", b.getStringAttr(describe(candidate.consumer))),
      b.getNamedAttr("bytes", b.getI64IntegerAttr(int64_t(candidate.savedBytes)))};
  if (!reason.empty())
    entry.push_back(b.getNamedAttr("reason", b.getStringAttr(reason)));
  report.push_back(b.getDictionaryAttr(entry));
}

// Most bytes saved first: each value that the consumer no longer reads, and that is no
// longer written when the consumer was its only user.
SmallVector<Candidate> FusionFormer::candidates() {
  SmallVector<Candidate> found;
  for (auto consumer : function.getBody().front().getOps<kern::FusionOp>()) {
    llvm::SetVector<Operation *> producers;
    for (Value input : consumer.getInputs())
      if (auto producer = input.getDefiningOp<kern::FusionOp>())
        producers.insert(producer);
    for (Operation *producer : producers) {
      if (refused.contains({producer, consumer}))
        continue;
      uint64_t saved = 0;
      for (Value value : producer->getResults()) {
        if (!llvm::is_contained(value.getUsers(), consumer.getOperation()))
          continue;
        bool onlyUser = llvm::all_of(value.getUsers(), [&](Operation *user) {
          return user == consumer.getOperation();
        });
        saved += bytesOf(value) * (onlyUser ? 2 : 1);
      }
      found.push_back({cast<kern::FusionOp>(producer), consumer, saved});
    }
  }
  llvm::stable_sort(found, [](const Candidate &x, const Candidate &y) {
    return x.savedBytes > y.savedBytes;
  });
  return found;
}

bool FusionFormer::tryMerge(const Candidate &candidate) {
  kern::FusionOp producer = candidate.producer, consumer = candidate.consumer;
  auto refuse = [&](StringRef reason) {
    refused.insert({producer, consumer});
    record("refused", candidate, reason);
    return false;
  };
  std::optional<kern::Hero> hero = commonHero(producer.getHero(), consumer.getHero());
  if (!hero)
    return refuse(("a " + kern::stringifyHero(producer.getHero()) + " and a " +
                   kern::stringifyHero(consumer.getHero()) + " have different loops")
                      .str());
  SmallVector<Value> kept; // results of the producer that others need too
  for (Value value : producer.getResults())
    for (Operation *user : value.getUsers()) {
      if (user == consumer.getOperation())
        continue;
      if (user->isBeforeInBlock(consumer))
        return refuse("another op needs the producer's result before the consumer runs");
      if (!llvm::is_contained(kept, value))
        kept.push_back(value);
    }

  llvm::SetVector<Value> inputs(producer.getInputs().begin(), producer.getInputs().end());
  for (Value input : consumer.getInputs())
    if (input.getDefiningOp() != producer.getOperation())
      inputs.insert(input);
  SmallVector<Type> resultTypes;
  for (Value value : kept)
    resultTypes.push_back(value.getType());
  llvm::append_range(resultTypes, consumer.getResultTypes());
  SmallVector<Attribute> sources;
  for (kern::FusionOp part : {producer, consumer})
    if (ArrayAttr names = part.getSourceOpsAttr())
      sources.append(names.begin(), names.end());

  b.setInsertionPoint(consumer);
  auto merged = kern::FusionOp::create(b, consumer.getLoc(), resultTypes, *hero,
                                       inputs.getArrayRef(), b.getArrayAttr(sources));
  Block &body = merged.getBody().emplaceBlock();
  IRMapping mapping;
  llvm::DenseMap<Value, Value> inside; // outer values as the region sees them
  for (Value input : inputs)
    inside[input] = body.addArgument(input.getType(), input.getLoc());
  OpBuilder into = OpBuilder::atBlockEnd(&body);
  auto cloneBody = [&](kern::FusionOp part) {
    Block &from = part.getBody().front();
    for (auto [argument, input] : llvm::zip(from.getArguments(), part.getInputs()))
      mapping.map(argument, inside.lookup(input));
    for (Operation &op : from.without_terminator())
      into.clone(op, mapping);
    auto yield = cast<kern::YieldOp>(from.getTerminator());
    for (auto [result, value] : llvm::zip(part.getResults(), yield.getValues()))
      inside[result] = mapping.lookupOrDefault(value);
  };
  cloneBody(producer);
  cloneBody(consumer);
  SmallVector<Value> yielded;
  for (Value value : kept)
    yielded.push_back(inside.lookup(value));
  for (Value value : consumer.getResults())
    yielded.push_back(inside.lookup(value));
  kern::YieldOp::create(into, consumer.getLoc(), yielded);

  std::string reason;
  if (!codegen::canEmit(*hero, body, &reason)) {
    merged.erase();
    return refuse(reason);
  }
  merged->setDiscardableAttrs(consumer->getDiscardableAttrDictionary());
  record("formed", candidate, "");
  // An op made later may get the address of one that goes now: forget what is said of them.
  llvm::SmallVector<std::pair<Operation *, Operation *>> stale;
  for (const auto &pair : refused)
    for (Operation *gone : {producer.getOperation(), consumer.getOperation()})
      if (pair.first == gone || pair.second == gone)
        stale.push_back(pair);
  for (const auto &pair : stale)
    refused.erase(pair);
  for (auto [value, replacement] : llvm::zip(kept, merged.getResults()))
    value.replaceAllUsesExcept(replacement, consumer);
  consumer.replaceAllUsesWith(merged.getResults().drop_front(kept.size()));
  consumer.erase();
  producer.erase();
  return true;
}

unsigned FusionFormer::run() {
  unsigned formed = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Candidate &candidate : candidates())
      if (tryMerge(candidate)) {
        ++formed;
        changed = true;
        break; // the others may name ops that are gone
      }
  }
  return formed;
}

namespace {
struct FormFusionsPass : lmc::impl::FormFusionsPassBase<FormFusionsPass> {
  void runOnOperation() override {
    SmallVector<Attribute> report;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      FusionFormer former(function);
      numFormed += former.run();
      llvm::append_range(report, former.report);
    }
    getOperation()->setAttr("kern.fusion_report", ArrayAttr::get(&getContext(), report));
  }
};
} // namespace
