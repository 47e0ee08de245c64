#include "compiler/kernels/Hero.h"
#include "compiler/kernels/MathFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;

namespace lmc::codegen {
namespace {

// The work of one call of a CPU kernel: in elements if the work item is an element (a flat domain),
// in columns for a column reduction, and otherwise in bytes of work items. The data of a call fit a
// private cache. The work takes much longer than the overhead of the call (under 1 us).
constexpr int64_t kFlatChunk = 16384;
constexpr int64_t kColumnChunk = 64;
constexpr uint64_t kRowChunkBytes = 48 << 10;

// Tensors may have these types, but the kernels compute in f32.
bool isShortFloat(Type type) { return type.isBF16() || type.isF16() || isEightBits(type); }

bool isStorage(Type type) {
  return type.isF32() || isShortFloat(type) || type.isF64() || type.isInteger(8) ||
         type.isInteger(32) || type.isInteger(64);
}

bool isCombiner(Operation *op) {
  return isa<arith::AddFOp, arith::MulFOp, arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
             arith::MinNumFOp, arith::AddIOp, arith::MulIOp, arith::MaxSIOp, arith::MinSIOp>(op);
}

// Returns true for scalar ops that a vector can compute element by element.
bool isScalarOp(Operation *op) {
  return mathFunction(op) ||
         isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp,
             arith::MaximumFOp, arith::MinimumFOp, arith::CmpFOp, arith::SelectOp, arith::ExtFOp,
             arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp, arith::IndexCastOp,
             arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::AndIOp, arith::OrIOp,
             arith::XOrIOp, arith::CmpIOp, arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp,
             arith::DivSIOp, arith::MaxSIOp, arith::MinSIOp, arith::BitcastOp, arith::ShLIOp,
             arith::ShRUIOp, arith::ShRSIOp>(op);
}

bool isFloatingPointWork(Operation *op) {
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::SelectOp, arith::CmpFOp, arith::BitcastOp>(op))
    return false;
  return op->getNumResults() == 1 && isa<FloatType>(op->getResult(0).getType()) &&
         op->getNumOperands() > 0 && isa<FloatType>(op->getOperand(0).getType());
}

struct ValueFacts {
  bool innermost = false; // true if the value varies along the innermost dimension
  bool outer = false;     // true if the value varies along an outer dimension: between work
                          // items, or between the rows that a column reduction reduces
  unsigned pass = 0;  // number of the first pass in which the value is known
  SmallVector<unsigned> accesses;

  void join(const ValueFacts &other) {
    innermost |= other.innermost;
    outer |= other.outer;
    pass = std::max(pass, other.pass);
    for (unsigned a : other.accesses)
      if (!llvm::is_contained(accesses, a))
        accesses.push_back(a);
  }
};

std::string shapeText(ArrayRef<int64_t> shape) {
  std::string text = "[";
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(shape, os);
  os << "]";
  return text;
}

bool hasReduction(linalg::GenericOp op) { return op.getNumReductionLoops() > 0; }

// The loops of a sum over blocks of rows. From the outermost to the innermost, they are: outer
// dimensions, block, reduced loops (the first is the index within the block), column.
struct BlockLoops {
  SmallVector<int64_t> domain; // extents of the loops before rows are split into blocks
  unsigned block = 0; // number of the loop `block`; the next loop is the index within the block
  int64_t within = 1; // extent of the loop over the index within a block
  int64_t rows = 1;   // number of rows of a block
};

std::optional<BlockLoops> blockLoops(linalg::GenericOp op) {
  using utils::IteratorType;
  SmallVector<IteratorType> iterators = op.getIteratorTypesArray();
  unsigned first = 0, n = unsigned(iterators.size());
  while (first < n && iterators[first] == IteratorType::parallel)
    ++first;
  if (first == 0 || n < first + 2 || iterators[n - 1] != IteratorType::parallel ||
      !llvm::all_of(ArrayRef(iterators).slice(first, n - 1 - first),
                    [](IteratorType type) { return type == IteratorType::reduction; }))
    return std::nullopt;
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  BlockLoops loops{{},
                   first - 1,
                   extents[first],
                   llvm::product_of(ArrayRef<int64_t>(extents).slice(first, n - 1 - first))};
  extents[first - 1] *= extents[first];
  extents.erase(extents.begin() + first);
  loops.domain = extents;
  return loops;
}

bool isBlockSum(linalg::GenericOp op) { return blockLoops(op).has_value(); }

bool isBlockSum(Value value) {
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  return generic && isBlockSum(generic);
}

Value termOf(Operation *combiner, BlockArgument acc) {
  return combiner->getOperand(combiner->getOperand(0) == acc ? 1 : 0);
}

AffineExpr indexExpr(linalg::IndexOp index, AffineMap point) {
  return point.getResult(index.getDim());
}

class Analyzer {
public:
  Analyzer(kern::Hero hero, Block &body) : body(body), context(body.getTerminator()->getContext()) {
    info.hero = hero;
  }

  llvm::Expected<RegionInfo> run() {
    if (failed(findDomain()))
      return llvm::createStringError(Twine(reason));
    for (auto [number, value] : llvm::enumerate(body.getTerminator()->getOperands()))
      if (failed(isBlockSum(value) ? addBlockSum(unsigned(number)) : addOutputs(unsigned(number))))
        return llvm::createStringError(Twine(reason));
    cost();
    return std::move(info);
  }

  void setLayout(ArrayRef<int64_t> rows, ArrayRef<int64_t> pitches) {
    info.argRows.assign(rows.begin(), rows.end());
    info.argPitches.assign(pitches.begin(), pitches.end());
  }

private:
  LogicalResult fail(const Twine &why) {
    if (reason.empty())
      reason = why.str();
    return failure();
  }

  LogicalResult findDomain() {
    auto yield = dyn_cast<kern::YieldOp>(body.getTerminator());
    if (!yield || yield.getValues().empty())
      return fail("the region has no results");
    auto isStaticTensor = [](Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      return tensor && tensor.hasStaticShape() && isStorage(tensor.getElementType());
    };
    if (!llvm::all_of(body.getArgumentTypes(), isStaticTensor))
      return fail(
          "an input is not a static tensor of f32, bf16, f16, f64, an 8-bit float, i8, i32 or i64");
    if (!llvm::all_of(yield.getValues().getTypes(), isStaticTensor))
      return fail(
          "a result is not a static tensor of f32, bf16, f16, f64, an 8-bit float, i8, i32 or i64");
    linalg::GenericOp reduction, blockSum;
    for (Operation &op : body)
      if (auto generic = dyn_cast<linalg::GenericOp>(op); generic && hasReduction(generic)) {
        linalg::GenericOp &first = isBlockSum(generic) ? blockSum : reduction;
        if (!first)
          first = generic;
      }
    SmallVector<int64_t> domain;
    if (blockSum) {
      if (!isRow())
        return fail("sums of blocks of rows need hero row_reduction");
      BlockLoops loops = *blockLoops(blockSum);
      domain = loops.domain;
      info.shape.rowsPerItem = loops.rows;
    } else if (reduction) {
      if (!isRow() && !isColumn())
        return fail("a reduction needs hero row_reduction or column_reduction");
      domain = reduction.getStaticLoopRanges();
      if (isRow())
        info.shape.reducedDims = reduction.getNumReductionLoops();
    } else {
      if (isColumn())
        return fail("hero column_reduction has no reduction over the rows");
      SmallVector<kern::ResultPart> parts = kern::partsOfResult(yield.getValues()[0]);
      if (parts.empty())
        return fail("result 0 is inserted in parts that do not make up a whole");
      llvm::append_range(domain, cast<RankedTensorType>(parts[0].value.getType()).getShape());
      // Without a reduction, the domain is the shape of the result with the most dimensions.
      for (Value value : yield.getValues())
        if (auto shape = cast<RankedTensorType>(value.getType()).getShape();
            isRow() && shape.size() > domain.size())
          domain.assign(shape.begin(), shape.end());
    }
    if (isColumn() && domain.size() != 2)
      return fail("hero column_reduction needs a domain (rows, columns), not " + shapeText(domain));
    if (isRow() && domain.empty())
      return fail("hero row_reduction needs a domain of at least one dimension");
    for (int64_t extent : domain)
      if (extent < 1)
        return fail("the domain " + shapeText(domain) + " is empty or not static");

    info.shape.domain = domain;
    unsigned n = domain.size();
    info.identity = AffineMap::getMultiDimIdentityMap(n, context);
    if (isColumn())
      info.reduced = info.identity.getSubMap({1});
    else if (isRow())
      info.reduced = info.outerDims() ? info.identity.getMajorSubMap(info.outerDims())
                                      : AffineMap::get(n, 0, {}, context);
    return success();
  }

  LogicalResult checkReduction(linalg::GenericOp op) {
    SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
    unsigned n = rank();
    if (ArrayRef<int64_t>(op.getStaticLoopRanges()) != ArrayRef<int64_t>(info.shape.domain))
      return fail("a reduction over " + shapeText(op.getStaticLoopRanges()) +
                  " does not match the domain " + shapeText(info.shape.domain));
    for (unsigned i = 0; i < n; ++i)
      if ((iterators[i] == utils::IteratorType::reduction) !=
          (isColumn() ? i == 0 : i >= info.outerDims()))
        return fail(isColumn() ? "hero column_reduction reduces the first of two dimensions only"
                               : "the reductions of hero row_reduction reduce the same last "
                                 "dimensions only");
    return success();
  }

  // Returns the op in the body of `value`'s reduction that combines the accumulator with the term.
  FailureOr<Operation *> combinerOf(OpResult value) {
    auto generic = cast<linalg::GenericOp>(value.getOwner());
    unsigned number = value.getResultNumber();
    BlockArgument acc = generic.getRegionOutputArgs()[number];
    Operation *combiner = generic.getBody()->getTerminator()->getOperand(number).getDefiningOp();
    if (!combiner || !isCombiner(combiner) || !acc.hasOneUse() || *acc.user_begin() != combiner)
      return fail(
          "a reduction must combine its accumulator once, by addf, mulf, a float maximum or "
          "minimum, addi, muli, maxsi or minsi");
    if (isShortFloat(acc.getType()))
      return fail("a reduction accumulates in a float of 8 or 16 bits");
    return combiner;
  }

  FailureOr<ValueFacts> visit(Value value, AffineMap point) {
    auto key = std::make_pair(value, point);
    if (auto it = memo.find(key); it != memo.end())
      return it->second;
    FailureOr<ValueFacts> result = isa<RankedTensorType>(value.getType())
                                       ? visitTensor(value, point)
                                       : visitScalar(value, point);
    if (succeeded(result))
      memo[key] = *result;
    return result;
  }

  FailureOr<ValueFacts> visitTensor(Value value, AffineMap point) {
    if (auto input = dyn_cast<BlockArgument>(value)) {
      if (input.getOwner() != &body)
        return fail("a value from outside the region is used");
      return access(input, point, {});
    }
    Operation *op = value.getDefiningOp();
    if (op->getBlock() != &body)
      return fail("a value from outside the region is used");
    if (auto fill = dyn_cast<linalg::FillOp>(op))
      return visit(fill.value(), AffineMap::get(rank(), 0, {}, context));
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      if (!isa<SplatElementsAttr>(constant.getValue()))
        return fail("a tensor constant that is not a splat");
      return ValueFacts();
    }
    if (isa<tensor::EmptyOp>(op))
      return fail("a tensor.empty is read before it is written");
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic)
      return fail("'" + op->getName().getStringRef() + "' is not allowed in a kernel");
    generics.insert(generic);
    if (isBlockSum(generic))
      return fail("the sums of blocks of rows may only be a result");
    if (hasReduction(generic))
      return visitReduction(cast<OpResult>(value), point);

    unsigned number = cast<OpResult>(value).getResultNumber();
    AffineMap out = generic.getMatchingIndexingMap(generic.getDpsInitOperand(number));
    if (!out.isIdentity())
      return fail("a linalg.generic writes its result through a map that is not an identity");
    Value yielded = generic.getBody()->getTerminator()->getOperand(number);
    FailureOr<ValueFacts> result = visit(yielded, point);
    if (failed(result))
      return failure();
    // A value that does not vary along the innermost dimension is computed early: the kernel loads
    // its inputs and computes it right after the passes that it depends on.
    if (!result->innermost) {
      execute(*result, result->pass);
      result->accesses.clear();
      info.outerValues.push_back({value, point, result->pass});
    }
    return result;
  }

  FailureOr<ValueFacts> visitScalar(Value value, AffineMap point) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto generic = dyn_cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
      if (!generic)
        return fail("a value from outside the region is used");
      OpOperand *operand = generic.getMatchingOpOperand(argument);
      if (hasReduction(generic) && generic.isDpsInit(operand))
        return fail("a reduction uses its accumulator outside its combiner");
      return visit(operand->get(), readPoint(generic, operand, point));
    }
    Operation *op = value.getDefiningOp();
    if (isa<arith::ConstantOp>(op))
      return ValueFacts();
    if (auto index = dyn_cast<linalg::IndexOp>(op)) {
      usesIndex = true;
      ValueFacts result;
      AffineExpr expr = indexExpr(index, point);
      unsigned n = rank();
      for (unsigned d = 0; d + 1 < n; ++d)
        if (d < info.outerDims())
          result.outer |= expr.isFunctionOfDim(d);
        else if (expr.isFunctionOfDim(d))
          return fail("linalg.index of a dimension within a row that is not the innermost one");
      if (n > 0 && expr.isFunctionOfDim(n - 1)) {
        if (expr != getAffineDimExpr(n - 1, context))
          return fail("linalg.index of the innermost dimension in a permuted read");
        result.innermost = true;
      }
      return result;
    }
    if (auto extract = dyn_cast<tensor::ExtractOp>(op))
      return visitExtract(extract, point);
    if (!isScalarOp(op))
      return fail("no code for '" + op->getName().getStringRef() + "' in a kernel");
    SmallVector<Type> types(op->getOperandTypes());
    llvm::append_range(types, op->getResultTypes());
    if (!isa<arith::ExtFOp, arith::TruncFOp, arith::SelectOp>(op) &&
        llvm::any_of(types, isShortFloat))
      return fail("'" + op->getName().getStringRef() +
                  "' computes in a float of 8 or 16 bits; extend to f32 first");
    if (!llvm::all_of(
            types, [](Type type) { return isStorage(type) || isa<IntegerType, IndexType>(type); }))
      return fail("'" + op->getName().getStringRef() +
                  "' uses a type other than f32, bf16, f16, 8-bit floats, f64 and integers");
    if (isa<arith::TruncFOp>(op) && isShortFloat(op->getResult(0).getType()) &&
        !op->getOperand(0).getType().isF32())
      return fail("arith.truncf to a float of 8 or 16 bits from a type other than f32");
    ValueFacts result;
    for (Value operand : op->getOperands()) {
      FailureOr<ValueFacts> i = visit(operand, point);
      if (failed(i))
        return failure();
      result.join(*i);
    }
    return result;
  }

  FailureOr<ValueFacts> visitReduction(OpResult value, AffineMap point) {
    auto generic = cast<linalg::GenericOp>(value.getOwner());
    if (failed(checkReduction(generic)))
      return failure();
    if (point != info.reduced)
      return fail("the result of a reduction is read for another item");
    unsigned number = value.getResultNumber();
    if (generic.getMatchingIndexingMap(generic.getDpsInitOperand(number)) != info.reduced)
      return fail("a reduction writes its result through a map that is not an identity");
    FailureOr<Operation *> combiner = combinerOf(value);
    if (failed(combiner))
      return failure();
    Value term = termOf(*combiner, generic.getRegionOutputArgs()[number]);
    FailureOr<ValueFacts> terms = visit(term, info.identity);
    if (failed(terms))
      return failure();
    if (isColumn() && terms->pass > 0)
      return fail("a column reduction may not depend on another");
    execute(*terms, terms->pass);
    FailureOr<ValueFacts> init = visit(generic.getDpsInitOperand(number)->get(), point);
    if (failed(init))
      return failure();
    unsigned pass = std::max(terms->pass, init->pass);
    execute(*init, pass + 1);

    info.reductions.push_back(
        {value, point, generic.getDpsInitOperand(number)->get(), term, *combiner, pass});
    ValueFacts result;
    result.pass = pass + 1;
    (isColumn() ? result.innermost : result.outer) = true;
    return result;
  }

  // Visits a sum over blocks of R rows. Row r of the domain is in block floor(r / R).
  FailureOr<ValueFacts> visitBlockSum(OpResult value, unsigned output) {
    auto generic = cast<linalg::GenericOp>(value.getOwner());
    generics.insert(generic);
    FailureOr<Operation *> combiner = combinerOf(value);
    if (failed(combiner))
      return failure();
    BlockLoops blocks = *blockLoops(generic);
    if (blocks.domain != info.shape.domain || blocks.rows != info.shape.rowsPerItem)
      return fail("a sum over blocks " + shapeText(generic.getStaticLoopRanges()) +
                  " does not match the domain " + shapeText(info.shape.domain) + " in blocks of " +
                  Twine(info.shape.rowsPerItem) + " rows");
    if (info.shape.reducedDims > 1)
      return fail("sums of blocks of rows need rows of one dimension");
    unsigned number = value.getResultNumber();
    OpOperand *init = generic.getDpsInitOperand(number);
    SmallVector<AffineExpr> kept, loopExprs;
    for (unsigned i = 0; i <= blocks.block; ++i)
      kept.push_back(getAffineDimExpr(i, context));
    kept.push_back(getAffineDimExpr(rank(), context));
    if (generic.getMatchingIndexingMap(init) != AffineMap::get(rank() + 1, 0, kept, context))
      return fail(
          "a sum of blocks of rows writes its result through a map that is not an identity");
    auto fill = init->get().getDefiningOp<linalg::FillOp>();
    if (!fill)
      return fail("a sum of blocks of rows starts from something else than a linalg.fill");
    for (unsigned d = 0; d < rank(); ++d) {
      AffineExpr index = getAffineDimExpr(d, context);
      if (d != blocks.block) {
        loopExprs.push_back(index);
        continue;
      }
      loopExprs.push_back(index.floorDiv(blocks.within));
      loopExprs.push_back(index % blocks.within);
    }
    SmallVector<AffineExpr> places =
        llvm::to_vector(ArrayRef<AffineExpr>(loopExprs).take_front(blocks.block + 1));
    places.push_back(loopExprs.back());
    AffineMap loops = AffineMap::get(rank(), 0, loopExprs, context);
    Value term = termOf(*combiner, generic.getRegionOutputArgs()[number]);
    FailureOr<ValueFacts> terms = visit(term, loops);
    if (failed(terms) || failed(visit(fill.value(), AffineMap::get(rank(), 0, {}, context))))
      return failure();
    execute(*terms, terms->pass);
    AffineMap point = AffineMap::get(rank(), 0, places, context);
    info.blockSums.push_back(
        {{value, point, fill.value(), term, *combiner, terms->pass}, loops, output});
    ValueFacts result;
    result.pass = terms->pass;
    return result;
  }

  FailureOr<ValueFacts> visitExtract(tensor::ExtractOp op, AffineMap point) {
    if (info.hero == kern::Hero::Elementwise)
      return fail("tensor.extract needs hero gather");
    auto input = dyn_cast<BlockArgument>(op.getTensor());
    if (!input || input.getOwner() != &body)
      return fail("tensor.extract may only read an input of the region");
    ValueFacts result;
    SmallVector<AffineExpr> exprs;
    SmallVector<bool> dynamic;
    for (auto [dim, index] : llvm::enumerate(op.getIndices())) {
      FailureOr<ValueFacts> operand = visit(index, point);
      if (failed(operand))
        return failure();
      AffineExpr expr = staticIndex(op, dim, point, info.shape.domain);
      dynamic.push_back(!expr);
      exprs.push_back(expr ? expr : getAffineConstantExpr(0, context));
      if (!expr && operand->innermost)
        return fail("tensor.extract may vary along the innermost dimension only by its plain loop "
                    "index, as the last index and within the tensor");
      if (expr && operand->innermost && dim + 1 != op.getIndices().size())
        return fail("tensor.extract may use the innermost loop index only as the last index");
      result.join(*operand);
    }
    AffineMap map = AffineMap::get(rank(), 0, exprs, context);
    FailureOr<ValueFacts> read = access(input, map, dynamic);
    if (failed(read))
      return failure();
    result.join(*read);
    return result;
  }

  FailureOr<ValueFacts> access(BlockArgument input, AffineMap point, ArrayRef<bool> dynamic) {
    ValueFacts result;
    unsigned n = rank();
    result.outer = info.isOuter(point);
    for (unsigned d = info.outerDims(); d + 1 < n; ++d)
      if (point.isFunctionOfDim(d) && !point.isFunctionOfDim(n - 1))
        return fail("input " + Twine(input.getArgNumber()) +
                    " varies along a row, but not along the innermost dimension");
    if (n > 0 && point.isFunctionOfDim(n - 1)) {
      AffineExpr inner = getAffineDimExpr(n - 1, context);
      for (unsigned i = 0; i < point.getNumResults(); ++i)
        if (i + 1 == point.getNumResults() ? point.getResult(i) != inner
                                           : point.getResult(i).isFunctionOfDim(n - 1))
          return fail("input " + Twine(input.getArgNumber()) +
                      " is not contiguous along the innermost dimension: it may only be the last "
                      "index, as it is");
      result.innermost = true;
    }
    result.accesses.push_back(info.accesses.size());
    Access &a = info.accesses.emplace_back();
    a.input = input.getArgNumber();
    a.point = point;
    a.dynamic.assign(dynamic.begin(), dynamic.end());
    a.dynamic.resize(point.getNumResults(), false);
    return result;
  }

  LogicalResult addBlockSum(unsigned number) {
    auto value = cast<OpResult>(body.getTerminator()->getOperand(number));
    FailureOr<ValueFacts> sum = visitBlockSum(value, unsigned(info.outputs.size()));
    if (failed(sum))
      return failure();
    AffineMap point = info.blockSums.back().sum.point;
    info.outputs.push_back({{value, point, sum->pass}, number, point});
    return success();
  }

  // Adds the parts of result `number`. Fails if the kernel's kind of loops cannot store them.
  LogicalResult addOutputs(unsigned number) {
    SmallVector<kern::ResultPart> parts =
        kern::partsOfResult(body.getTerminator()->getOperand(number));
    if (parts.empty())
      return fail("result " + Twine(number) + " is inserted in parts that do not make up a whole");
    if (parts.size() > 1 && isColumn())
      return fail("a result in parts needs hero elementwise, gather or row_reduction");
    // Vectors are stored along the innermost dimension, so a part must begin at index 0 of it.
    for (const kern::ResultPart &part : parts) {
      ArrayRef<AffineExpr> place = part.place.getResults();
      unsigned innermost = part.place.getNumDims() - 1;
      if (parts.size() > 1 &&
          (part.place.getNumDims() == 0 || place.back() != getAffineDimExpr(innermost, context) ||
           llvm::any_of(place.drop_back(),
                        [&](AffineExpr expr) { return expr.isFunctionOfDim(innermost); })))
        return fail("the parts of result " + Twine(number) +
                    " lie side by side in its innermost dimension");
    }
    for (const kern::ResultPart &part : parts) {
      ArrayRef<int64_t> shape = cast<RankedTensorType>(part.value.getType()).getShape();
      ArrayRef<int64_t> domain = info.shape.domain;
      AffineMap point;
      if (shape == domain && !isColumn())
        point = info.identity;
      else if (isRow() && parts.size() == 1 && shape == domain.take_front(info.outerDims()))
        point = info.reduced;
      else if (isColumn() && shape == domain.drop_front())
        point = info.reduced;
      else
        return fail("result " + Twine(number) + " of shape " + shapeText(shape) +
                    " does not fit the domain " + shapeText(domain) + " of hero " +
                    kern::stringifyHero(info.hero));
      FailureOr<ValueFacts> result = visit(part.value, point);
      if (failed(result))
        return failure();
      execute(*result, result->pass);
      info.outputs.push_back(
          {{part.value, point, result->pass}, number, part.place.compose(point)});
    }
    return success();
  }

  void execute(const ValueFacts &value, unsigned pass) {
    for (unsigned a : value.accesses)
      info.accesses[a].lastPass = std::max(info.accesses[a].lastPass, pass);
  }

  void cost() {
    KernelShape &shape = info.shape;
    unsigned n = rank();
    const int64_t points = llvm::product_of(shape.domain);
    shape.inner = n ? shape.domain.back() : 1;

    if (isColumn()) {
      shape.items = shape.domain[1];
      shape.inner = shape.domain[0];
    } else if (!isRow()) {
      bool dense = llvm::all_of(info.argPitches, [](int64_t pitch) { return pitch == 0; });
      bool whole = llvm::all_of(info.outputs, [&](const Output &o) { return o.place == o.point; });
      bool alike = llvm::all_of(info.accesses, [&](const Access &a) {
        return a.point == info.identity || a.point.getNumResults() == 0;
      });
      shape.flat = n <= 1 || (dense && whole && !usesIndex && alike);
      shape.items = shape.flat ? points : points / shape.inner;
      if (shape.flat)
        shape.inner = 1;
    } else {
      shape.inner = llvm::product_of(ArrayRef<int64_t>(shape.domain).drop_front(info.outerDims()));
      shape.items = points / shape.inner / shape.rowsPerItem;
    }
    for (const BlockSum &b : info.blockSums)
      shape.passes = std::max(shape.passes, b.sum.pass + 1);
    for (const Reduction &r : info.reductions)
      shape.passes = std::max(shape.passes, r.pass + 1);
    for (const Computed &o : info.outputs)
      if (info.coversDomain(o))
        shape.passes = std::max(shape.passes, o.pass + 1);

    for (auto [number, type] : llvm::enumerate(body.getArgumentTypes())) {
      auto tensor = cast<RankedTensorType>(type);
      int64_t touched = 0;
      for (const Access &a : info.accesses) {
        if (a.input != number)
          continue;
        int64_t elements = 1;
        for (unsigned d = 0; d < n; ++d)
          if (a.point.isFunctionOfDim(d) || (d + 1 < n && llvm::is_contained(a.dynamic, true)))
            elements *= shape.domain[d];
        touched = std::min(tensor.getNumElements(), touched + elements);
      }
      shape.readBytes += uint64_t(touched) * (tensor.getElementTypeBitWidth() / 8);
    }
    for (const Computed &o : info.outputs) {
      auto tensor = cast<RankedTensorType>(o.value.getType());
      shape.writtenBytes +=
          uint64_t(tensor.getNumElements()) * (tensor.getElementTypeBitWidth() / 8);
    }
    for (Operation *op : generics) {
      auto generic = cast<linalg::GenericOp>(op);
      shape.flops += uint64_t(llvm::product_of(generic.getStaticLoopRanges())) *
                     llvm::count_if(*generic.getBody(),
                                    [](Operation &op) { return isFloatingPointWork(&op); });
    }
    shape.bytesPerItem =
        llvm::divideCeil(shape.readBytes + shape.writtenBytes, uint64_t(shape.items));
    shape.flopsPerItem = llvm::divideCeil(shape.flops, uint64_t(shape.items));

    if (shape.flat)
      shape.chunk = kFlatChunk;
    else if (isColumn())
      shape.chunk = kColumnChunk;
    else
      shape.chunk =
          std::max<int64_t>(1, kRowChunkBytes / std::max<uint64_t>(1, shape.bytesPerItem));
    shape.chunk = std::min(shape.chunk, shape.items);
  }

  unsigned rank() const { return info.shape.domain.size(); }
  bool isRow() const { return info.hero == kern::Hero::RowReduction; }
  bool isColumn() const { return info.hero == kern::Hero::ColumnReduction; }

  Block &body;
  MLIRContext *context;
  std::string reason; // describes the first failure
  RegionInfo info;
  bool usesIndex = false;
  DenseMap<std::pair<Value, AffineMap>, ValueFacts> memo;
  llvm::SetVector<Operation *> generics;
};

} // namespace

AffineExpr staticIndex(tensor::ExtractOp extract, unsigned dim, AffineMap point,
                       ArrayRef<int64_t> domain) {
  auto index = extract.getIndices()[dim].getDefiningOp<linalg::IndexOp>();
  if (!index)
    return {};
  auto expr = dyn_cast<AffineDimExpr>(indexExpr(index, point));
  if (!expr || domain[expr.getPosition()] > extract.getTensor().getType().getDimSize(dim))
    return {};
  return expr;
}

AffineMap readPoint(linalg::GenericOp generic, OpOperand *operand, AffineMap point) {
  return simplifyAffineMap(generic.getMatchingIndexingMap(operand).compose(point));
}

TypedAttr identityOf(const Reduction &reduction) {
  Type element = cast<RankedTensorType>(reduction.result.getType()).getElementType();
  Builder b(element.getContext());
  if (isa<FloatType>(element)) {
    double inf = std::numeric_limits<double>::infinity();
    return b.getFloatAttr(element,
                          llvm::TypeSwitch<Operation *, double>(reduction.combiner)
                              .Case([](arith::MulFOp) { return 1.0; })
                              .Case<arith::MaximumFOp, arith::MaxNumFOp>([&](auto) { return -inf; })
                              .Case<arith::MinimumFOp, arith::MinNumFOp>([&](auto) { return inf; })
                              .Default([](Operation *) { return 0.0; }));
  }
  unsigned bits = element.getIntOrFloatBitWidth();
  return b.getIntegerAttr(element,
                          llvm::TypeSwitch<Operation *, APInt>(reduction.combiner)
                              .Case([&](arith::MulIOp) { return APInt(bits, 1); })
                              .Case([&](arith::MaxSIOp) { return APInt::getSignedMinValue(bits); })
                              .Case([&](arith::MinSIOp) { return APInt::getSignedMaxValue(bits); })
                              .Default([&](Operation *) { return APInt(bits, 0); }));
}

llvm::Expected<RegionInfo> analyzeRegion(kern::Hero hero, Block &body) {
  return Analyzer(hero, body).run();
}

llvm::Expected<RegionInfo> analyzeKernel(kern::KernelOp kernel) {
  Analyzer analyzer(kernel.getHero(), kernel.getBody().front());
  if (kernel.getArgPitches() && kernel.getArgRows())
    analyzer.setLayout(*kernel.getArgRows(), *kernel.getArgPitches());
  return analyzer.run();
}

static llvm::Expected<KernelShape> shapeOf(llvm::Expected<RegionInfo> info) {
  if (!info)
    return info.takeError();
  return info->shape;
}

llvm::Expected<KernelShape> analyze(kern::Hero hero, Block &body) {
  return shapeOf(analyzeRegion(hero, body));
}

llvm::Expected<KernelShape> analyze(kern::KernelOp kernel) {
  return shapeOf(analyzeKernel(kernel));
}

// If an argument has padding between its rows, a row has `run` elements without padding.
int64_t RegionInfo::strideOf(unsigned argument, RankedTensorType type, unsigned dim) const {
  const int64_t stride = llvm::product_of(type.getShape().drop_front(dim + 1));
  if (argument >= argPitches.size() || argPitches[argument] == 0)
    return stride;
  int64_t run = type.getNumElements() / argRows[argument];
  return stride < run ? stride : stride / run * argPitches[argument];
}

bool canEmit(kern::Hero hero, Block &body) {
  return !llvm::errorToBool(analyzeRegion(hero, body).takeError());
}

// Returns true if `access` reads an element before the kernel writes this element in `output`.
static bool readsBefore(const RegionInfo &info, const Access &access, const Output &output) {
  if (!llvm::is_contained(access.dynamic, true) && access.point == output.place)
    return true;
  // In a row reduction, loads that do not vary along the row come before the pass that writes the
  // row. So they may read any element of the row. In other kernels, several threads of a GPU share
  // a row without synchronisation, so one may read an element that another has overwritten.
  unsigned n = info.shape.domain.size();
  if (info.hero != kern::Hero::RowReduction || output.place != output.point ||
      !info.coversDomain(output) || access.point.isFunctionOfDim(n - 1))
    return false;
  for (unsigned d = 0; d < info.outerDims(); ++d)
    if (access.dynamic[d] || access.point.getResult(d) != info.identity.getResult(d))
      return false;
  return true;
}

bool mayShareBuffer(const RegionInfo &info, Block &body, unsigned result, unsigned input) {
  if (result >= body.getTerminator()->getNumOperands() || input >= body.getNumArguments())
    return false;
  auto type = cast<RankedTensorType>(body.getTerminator()->getOperand(result).getType());
  auto inputType = cast<RankedTensorType>(body.getArgument(input).getType());
  if (type.getShape() != inputType.getShape() ||
      type.getElementTypeBitWidth() != inputType.getElementTypeBitWidth())
    return false;
  // At each point of the domain, all loads come before all stores to the parts of a result.
  SmallVector<const Output *> parts;
  for (const Output &output : info.outputs)
    if (output.result == result)
      parts.push_back(&output);
  return llvm::all_of(info.accesses, [&](const Access &access) {
    return access.input != input ||
           (llvm::all_of(parts,
                         [&](const Output *part) {
                           return !info.isBlockSum(*part) && access.lastPass <= part->pass;
                         }) &&
            llvm::any_of(parts,
                         [&](const Output *part) { return readsBefore(info, access, *part); }));
  });
}

} // namespace lmc::codegen
