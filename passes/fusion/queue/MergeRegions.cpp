#include "passes/fusion/queue/MergeRegions.h"

#include "compiler/kernels/Hero.h"
#include "passes/memory/OpCost.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace lmc;

// Returns the hero (loop structure) that can compute both regions, or nullopt if they need
// different ones.
static std::optional<kern::Hero> commonHero(kern::Hero first, kern::Hero second) {
  if (first == second || first == kern::Hero::Elementwise)
    return second;
  if (second == kern::Hero::Elementwise)
    return first;
  return std::nullopt;
}

llvm::Expected<MergePlan> lmc::planMerge(const FusionPart &first, const FusionPart &second) {
  std::optional<kern::Hero> hero = commonHero(first.hero, second.hero);
  if (!hero)
    return llvm::createStringError("a " + kern::stringifyHero(first.hero) + " and a " +
                                   kern::stringifyHero(second.hero) + " have different loops");
  MergePlan plan{*hero, {}, {}, {}};
  llvm::SetVector<Value> inputs;
  for (Operation *op : {first.op, second.op})
    for (Value input : op->getOperands()) {
      if (auto made = dyn_cast<OpResult>(input); made && made.getOwner() == first.op) {
        plan.wiring.push_back(-1 - int64_t(made.getResultNumber()));
        continue;
      }
      inputs.insert(input);
      plan.wiring.push_back(llvm::find(inputs, input) - inputs.begin());
    }
  plan.inputs = inputs.takeVector();
  for (Operation *op : {first.op, second.op})
    for (OpResult result : op->getResults()) {
      bool read = llvm::any_of(result.getUsers(), [&](Operation *user) {
        return user != first.op && user != second.op;
      });
      plan.wiring.push_back(read);
      if (read)
        plan.results.push_back(result);
    }
  if (plan.results.empty())
    return llvm::createStringError("no other op reads their results");
  return plan;
}

// `whole` is assembled from parts, and loops read it at the indices `map`. If they read only one
// part, returns this part and changes `map` to indices into the part. Otherwise returns null.
static Value partRead(Value whole, AffineMap &map) {
  for (const kern::ResultPart &part : kern::partsOfResult(whole)) {
    SmallVector<AffineExpr> indices(part.place.getNumDims());
    bool isInside = true;
    for (auto [at, read] : llvm::zip_equal(part.place.getResults(), map.getResults())) {
      if (auto dim = dyn_cast<AffineDimExpr>(at))
        indices[dim.getPosition()] = read;
      else
        isInside &= isa<AffineConstantExpr>(at) && at == read;
    }
    if (!isInside)
      continue;
    map = AffineMap::get(map.getNumDims(), 0, indices, map.getContext());
    return part.value;
  }
  return {};
}

// If loops read only one part of an assembled tensor, makes them read the part itself. A kernel can
// assemble its results from parts, but not the tensors that its loops read.
static void readParts(Block &body) {
  for (auto generic : body.getOps<linalg::GenericOp>()) {
    SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
    bool changed = false;
    for (OpOperand *input : generic.getDpsInputOperands()) {
      if (!input->get().getDefiningOp<tensor::InsertSliceOp>())
        continue;
      if (Value part = partRead(input->get(), maps[input->getOperandNumber()])) {
        input->set(part);
        changed = true;
      }
    }
    if (changed)
      generic.setIndexingMapsAttr(
          Builder(body.getParent()->getContext()).getAffineMapArrayAttr(maps));
  }
  SmallVector<tensor::InsertSliceOp> inserts(body.getOps<tensor::InsertSliceOp>());
  for (tensor::InsertSliceOp insert : llvm::reverse(inserts))
    if (insert.use_empty())
      insert.erase();
}

llvm::Error lmc::buildMerged(const MergePlan &plan, const FusionPart &first,
                             const FusionPart &second, Operation *merged) {
  Block &body = merged->getRegion(0).emplaceBlock();
  llvm::DenseMap<Value, Value> inside; // values outside -> values inside the merged region
  for (Value input : plan.inputs)
    inside[input] = body.addArgument(input.getType(), input.getLoc());
  OpBuilder b = OpBuilder::atBlockEnd(&body);
  for (const FusionPart *part : {&first, &second}) {
    IRMapping mapping; // one map per part: two launches of one kernel have equal keys
    for (auto [argument, input] : llvm::zip(part->body->getArguments(), part->op->getOperands()))
      mapping.map(argument, inside.lookup(input));
    for (Operation &op : part->body->without_terminator())
      b.clone(op, mapping);
    auto yield = cast<kern::YieldOp>(part->body->getTerminator());
    for (auto [result, value] : llvm::zip(part->op->getResults(), yield.getValues()))
      inside[result] = mapping.lookupOrDefault(value);
  }
  SmallVector<Value> yielded;
  for (Value value : plan.results)
    yielded.push_back(inside.lookup(value));
  kern::YieldOp::create(b, merged->getLoc(), yielded);
  readParts(body);
  if (auto shape = codegen::analyze(plan.hero, body); !shape) {
    merged->erase();
    return shape.takeError();
  }
  IRRewriter rewriter(merged->getContext());
  DominanceInfo dominance;
  eliminateCommonSubExpressions(rewriter, dominance, merged);
  return llvm::Error::success();
}

ArrayAttr lmc::mergedSources(MLIRContext *context, const FusionPart &first,
                             const FusionPart &second) {
  SmallVector<Attribute> sources;
  for (const FusionPart *part : {&first, &second})
    if (part->sources)
      llvm::append_range(sources, part->sources);
  return ArrayAttr::get(context, sources);
}

uint64_t lmc::savedBytes(Operation *first, Operation *second) {
  llvm::SmallSetVector<Value, 8> inputs(first->operand_begin(), first->operand_end());
  llvm::SmallSetVector<Value, 8> others(second->operand_begin(), second->operand_end());
  uint64_t saved = 0;
  for (Value input : others)
    if (inputs.contains(input))
      saved += bytesOf(input);
  for (Value value : first->getResults()) {
    if (!others.contains(value))
      continue;
    bool onlyUser = llvm::all_of(value.getUsers(), [&](Operation *user) { return user == second; });
    saved += bytesOf(value) * (onlyUser ? 2 : 1);
  }
  return saved;
}

namespace {

// Writes ops as numbers. A value is written as its position in the order of definitions. Names,
// types and attributes are written as addresses: an MLIR context stores equal ones only once.
class Fingerprint {
public:
  void add(Block &block) {
    define(block.getArguments());
    add(uint64_t(llvm::range_size(block)));
    for (Operation &op : block)
      add(op);
  }
  void add(uint64_t number) {
    bytes.append(reinterpret_cast<const char *>(&number), sizeof(number));
  }

  std::string bytes;

private:
  void add(const void *unique) { add(uint64_t(reinterpret_cast<uintptr_t>(unique))); }
  void add(Operation &op) {
    add(op.getName().getAsOpaquePointer());
    add(op.getAttrDictionary().getAsOpaquePointer());
    add(uint64_t(op.getNumOperands()));
    for (Value operand : op.getOperands())
      add(numbers.lookup(operand));
    define(op.getResults());
    for (Region &region : op.getRegions()) {
      add(uint64_t(region.getBlocks().size()));
      for (Block &block : region)
        add(block);
    }
  }
  void define(ValueRange values) {
    add(uint64_t(values.size()));
    for (Value value : values) {
      add(value.getType().getAsOpaquePointer());
      numbers.try_emplace(value, numbers.size() + 1);
    }
  }

  llvm::DenseMap<Value, uint64_t> numbers;
};

} // namespace

std::string lmc::fingerprint(kern::Hero hero, Block &body) {
  Fingerprint print;
  print.add(uint64_t(hero));
  print.add(body);
  return std::move(print.bytes);
}

std::string lmc::describe(ArrayAttr sources) {
  return sources ? llvm::join(sources.getAsValueRange<StringAttr>(), "+") : "";
}

std::string lmc::kernelName(ArrayAttr sources) {
  SmallVector<StringRef> parts;
  if (sources)
    for (auto source : sources.getAsRange<StringAttr>()) {
      StringRef op = source.getValue();
      op.consume_front("lm.");
      StringRef computedAgain = op;
      if (!parts.empty() && computedAgain.consume_back("_grad") && parts.back() == computedAgain)
        parts.back() = op;
      else if (parts.empty() || parts.back() != op)
        parts.push_back(op);
    }
  std::string name = llvm::join(parts, "_");
  if (name.size() > 80) // long names are cut off; the attribute source_ops lists all ops
    name.resize(80);
  for (char &c : name)
    if (!llvm::isAlnum(c))
      c = '_';
  return name.empty() ? "kernel" : name;
}
