#include "passes/fusion/queue/FusionBuilder.h"

#include "dialects/interfaces/TensorBytes.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

#include "llvm/ADT/SmallBitVector.h"

#include <limits>

using namespace mlir;
using namespace lmc;

Value lmc::asRows(OpBuilder &b, Location loc, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getRank() == 1 ? reshape(b, loc, value, {1, type.getDimSize(0)}) : value;
}

Type lmc::arithmeticType(Type storage) {
  return storage.isBF16() || storage.isF16() || isEightBits(storage)
             ? Float32Type::get(storage.getContext())
             : storage;
}

int64_t lmc::rowsPerBlock(int64_t rows, int64_t further) {
  constexpr int64_t kBlocks = 64;
  const int64_t wanted = std::max<int64_t>(1, 64 / further),
                fewest = std::max<int64_t>(1, 16 / further);
  if (rows <= wanted)
    return rows;
  for (int64_t r = wanted; r >= fewest; --r)
    if (rows % r == 0)
      return r;
  for (int64_t r = wanted + 1; r <= rows / kBlocks; ++r)
    if (rows % r == 0)
      return r;
  for (int64_t r = fewest - 1; r > 1; --r)
    if (rows % r == 0)
      return r;
  return 1;
}

FusionBuilder::FusionBuilder(OpBuilder &builder, Location loc, kern::Hero hero, ValueRange inputs,
                             StringRef sourceOp)
    : outside(builder), b(builder.getContext()), loc(loc), hero(hero), inputs(inputs),
      sourceOp(sourceOp) {
  block = &region.emplaceBlock();
  for (Value input : inputs)
    block->addArgument(input.getType(), loc);
  b.setInsertionPointToEnd(block);
}

AffineMap FusionBuilder::all(unsigned rank) { return b.getMultiDimIdentityMap(rank); }
AffineMap FusionBuilder::outer(unsigned rank) { return all(rank).dropResult(rank - 1); }
AffineMap FusionBuilder::inner(unsigned rank) {
  return AffineMap::get(rank, 0, b.getAffineDimExpr(rank - 1));
}
AffineMap FusionBuilder::none(unsigned rank) { return AffineMap::get(rank, 0, b.getContext()); }

Value FusionBuilder::generic(RankedTensorType type, Value init, AffineMap resultMap,
                             ArrayRef<utils::IteratorType> iterators, ArrayRef<Read> reads,
                             Body body, std::optional<Combine> combine) {
  SmallVector<Value> values;
  SmallVector<AffineMap> maps;
  for (const Read &read : reads) {
    values.push_back(read.value);
    maps.push_back(read.map);
  }
  maps.push_back(resultMap);
  auto op = linalg::GenericOp::create(
      b, loc, TypeRange{type}, values, ValueRange{init}, maps, iterators,
      [&](OpBuilder &inside, Location at, ValueRange scalars) {
        SmallVector<Value> wide;
        for (Value scalar : scalars.drop_back())
          wide.push_back(convertFloat(inside, at, scalar, arithmeticType(scalar.getType())));
        Scalar result = body({inside, at, wide}), sum = result.with(scalars.back());
        if (combine)
          result = *combine == Combine::Add ? sum + result : maximum(sum, result);
        linalg::YieldOp::create(inside, at, Value(result.to(type.getElementType())));
      });
  return op.getResult(0);
}

Value FusionBuilder::filled(RankedTensorType type, double neutral) {
  Type element = type.getElementType();
  Value start = arith::ConstantOp::create(b, loc, b.getFloatAttr(element, neutral));
  Value empty = tensor::EmptyOp::create(b, loc, type.getShape(), element);
  return linalg::FillOp::create(b, loc, ValueRange{start}, ValueRange{empty}).getResult(0);
}

Value FusionBuilder::map(RankedTensorType type, ArrayRef<Read> reads, Body body) {
  Value empty = tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  SmallVector<utils::IteratorType> parallel(type.getRank(), utils::IteratorType::parallel);
  return generic(type, empty, all(unsigned(type.getRank())), parallel, reads, body);
}

Value FusionBuilder::reduce(ArrayRef<int64_t> extents, unsigned axis, Type element,
                            ArrayRef<Read> reads, Combine combine, Body body, unsigned count) {
  SmallVector<int64_t> kept(extents);
  kept.erase(kept.begin() + axis, kept.begin() + axis + count);
  auto type = RankedTensorType::get(kept, element);
  Value init =
      filled(type, combine == Combine::Add ? 0.0 : -std::numeric_limits<double>::infinity());
  unsigned rank = unsigned(extents.size());
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  llvm::SmallBitVector reduced(rank);
  reduced.set(axis, axis + count);
  for (unsigned i : reduced.set_bits())
    iterators[i] = utils::IteratorType::reduction;
  return generic(type, init, all(rank).dropResults(reduced), iterators, reads, body, combine);
}

// The loops are (block of rows, row in the block, further..., column). The second loop takes its
// extent from an empty tensor, whose elements are never read.
Value FusionBuilder::sumBlocks(ArrayRef<int64_t> extents, int64_t rowsPerBlock, Type element,
                               ArrayRef<Read> reads, Body body) {
  MLIRContext *context = b.getContext();
  unsigned loops = unsigned(extents.size()) + 1;
  AffineExpr block = getAffineDimExpr(0, context), row = getAffineDimExpr(1, context),
             column = getAffineDimExpr(loops - 1, context);
  SmallVector<AffineExpr> indices{block * rowsPerBlock + row};
  for (unsigned i = 2; i < loops; ++i)
    indices.push_back(getAffineDimExpr(i, context));
  AffineMap toRows = AffineMap::get(loops, 0, indices, context);
  SmallVector<Read> blocked;
  for (const Read &read : reads)
    blocked.push_back({read.value, read.map.compose(toRows)});
  blocked.push_back({tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{rowsPerBlock}, element),
                     AffineMap::get(loops, 0, row)});

  auto type = RankedTensorType::get({extents[0] / rowsPerBlock, extents.back()}, element);
  SmallVector<utils::IteratorType> kinds(loops, utils::IteratorType::reduction);
  kinds.front() = kinds.back() = utils::IteratorType::parallel;
  return generic(type, filled(type, 0.0), AffineMap::get(loops, 0, {block, column}, context), kinds,
                 blocked, body, Combine::Add);
}

Value FusionBuilder::stack(RankedTensorType type, unsigned dim, ValueRange parts) {
  Value whole = tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), sizes,
      strides(type.getRank(), b.getIndexAttr(1));
  for (int64_t extent : type.getShape())
    sizes.push_back(b.getIndexAttr(extent));
  sizes[dim] = b.getIndexAttr(1);
  for (auto [index, part] : llvm::enumerate(parts)) {
    offsets[dim] = b.getIndexAttr(int64_t(index));
    whole = tensor::InsertSliceOp::create(b, loc, part, whole, offsets, sizes, strides);
  }
  return whole;
}

kern::FusionOp FusionBuilder::finish(ValueRange results) {
  kern::YieldOp::create(b, loc, results);
  auto op = kern::FusionOp::create(outside, loc, results.getTypes(), hero, inputs,
                                   outside.getStrArrayAttr({sourceOp}));
  op.getBody().takeBody(region);
  return op;
}

Value lmc::reduceAlone(OpBuilder &b, Location loc, kern::Hero hero, Value x, unsigned axis,
                       Type element, FusionBuilder::Combine combine, StringRef sourceOp,
                       FusionBuilder::Body body) {
  FusionBuilder f(b, loc, hero, x, sourceOp);
  ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape();
  return f
      .finish(f.reduce(shape, axis, element, {{f.arg(0), f.all(unsigned(shape.size()))}}, combine,
                       body))
      .getResult(0);
}
