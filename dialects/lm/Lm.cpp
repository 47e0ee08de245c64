#include "dialects/lm/Lm.h"

#include "dialects/interfaces/Attention.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::lm;

#include "dialects/lm/LmDialect.cpp.inc"
#include "dialects/lm/LmEnums.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/lm/LmOps.cpp.inc"

namespace {
// A layer's function may be inlined anywhere: its ops touch nothing but values and named state.
struct LmInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void LmDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/lm/LmOps.cpp.inc"
      >();
  addInterfaces<LmInliner>();
}

//===-- State -------------------------------------------------------------------------------===//

static LogicalResult verifyVariableUse(Operation *op, SymbolTableCollection &symbols,
                                       FlatSymbolRefAttr name, Type type) {
  auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(op, name);
  if (!variable)
    return op->emitOpError("refers to ") << name << ", which is no lm.variable";
  if (variable.getType() != type)
    return op->emitOpError("has type ") << type << " but " << name << " is a "
                                        << variable.getType();
  return success();
}

void VariableOp::build(OpBuilder &b, OperationState &state, StringRef name, VariableKind kind,
                       Type type, DictionaryAttr init, bool weightDecay, StringAttr parameter) {
  build(b, state, b.getStringAttr(name), VariableKindAttr::get(b.getContext(), kind),
        TypeAttr::get(type), init, weightDecay ? b.getUnitAttr() : UnitAttr(), parameter,
        ArrayAttr(), FlatSymbolRefAttr(), IntegerAttr(), UnitAttr());
}

LogicalResult VariableOp::verify() {
  if (getStorage().has_value() != getStorageOffset().has_value())
    return emitOpError("has a storage without an offset in it, or the reverse");
  if (!getParts())
    return success();
  auto type = cast<RankedTensorType>(getType());
  int64_t rows = 0;
  for (Attribute attribute : getPartsAttr()) {
    auto part = dyn_cast<DictionaryAttr>(attribute);
    if (!part || !part.getAs<StringAttr>("name") || !part.getAs<IntegerAttr>("rows") ||
        part.getAs<IntegerAttr>("rows").getInt() <= 0 || !part.getAs<DictionaryAttr>("init"))
      return emitOpError("has a part without a name, rows or an initialiser");
    rows += part.getAs<IntegerAttr>("rows").getInt();
  }
  if (type.getRank() == 0 || rows != type.getDimSize(0))
    return emitOpError("has parts of ") << rows << " rows in all, but is a " << type;
  return success();
}

LogicalResult LoadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, symbols, getVariableAttr(), getType());
}

LogicalResult StoreOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, symbols, getVariableAttr(), getValue().getType());
}

LogicalResult AccumulateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, symbols, getVariableAttr(), getValue().getType());
}

//===-- Shapes ------------------------------------------------------------------------------===//

// Checks one extent and says which two must agree.
static LogicalResult expectEqual(Operation *op, int64_t actual, int64_t expected, StringRef what) {
  if (actual == expected)
    return success();
  return op->emitOpError("has ") << what << " " << actual << ", expected " << expected;
}

static int64_t dim(Value value, unsigned index) {
  return cast<RankedTensorType>(value.getType()).getDimSize(index);
}

LogicalResult EmbeddingOp::verify() {
  if (failed(expectEqual(*this, dim(getResult(), 0), dim(getIds(), 0), "result rows")))
    return failure();
  return expectEqual(*this, dim(getResult(), 1), dim(getTable(), 1), "result columns");
}

LogicalResult EmbeddingGradOp::verify() {
  if (failed(expectEqual(*this, dim(getDy(), 0), dim(getIds(), 0), "dy rows")))
    return failure();
  if (getAcc() && getAcc().getType() != getType())
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return expectEqual(*this, dim(getResult(), 1), dim(getDy(), 1), "result columns");
}

LogicalResult MatmulOp::verify() {
  int64_t m = dim(getA(), getTransposeA() ? 1 : 0), ka = dim(getA(), getTransposeA() ? 0 : 1);
  int64_t kb = dim(getB(), getTransposeB() ? 1 : 0), n = dim(getB(), getTransposeB() ? 0 : 1);
  if (failed(expectEqual(*this, kb, ka, "contraction size of b")) ||
      failed(expectEqual(*this, dim(getResult(), 0), m, "result rows")))
    return failure();
  if (getAcc() && getAcc().getType() != getType())
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return expectEqual(*this, dim(getResult(), 1), n, "result columns");
}

LogicalResult LinearOp::verify() {
  if (failed(expectEqual(*this, dim(getWeight(), 1), dim(getX(), 1), "weight columns")) ||
      failed(expectEqual(*this, dim(getResult(), 0), dim(getX(), 0), "result rows")))
    return failure();
  if (getBias() && failed(expectEqual(*this, dim(getBias(), 0), dim(getWeight(), 0), "bias size")))
    return failure();
  return expectEqual(*this, dim(getResult(), 1), dim(getWeight(), 0), "result columns");
}

// Whether `parts` are the columns of `whole`.
static LogicalResult verifyColumns(Operation *op, Value whole, ValueRange parts) {
  auto type = cast<RankedTensorType>(whole.getType());
  int64_t columns = 0;
  for (Value part : parts) {
    auto partType = cast<RankedTensorType>(part.getType());
    if (partType.getElementType() != type.getElementType())
      return op->emitOpError("has a part of type ") << partType << " in a " << type;
    if (failed(expectEqual(op, partType.getDimSize(0), type.getDimSize(0), "part rows")))
      return failure();
    columns += partType.getDimSize(1);
  }
  return expectEqual(op, columns, type.getDimSize(1), "columns in all parts");
}

LogicalResult SplitOp::verify() { return verifyColumns(*this, getX(), getParts()); }
LogicalResult JoinOp::verify() { return verifyColumns(*this, getResult(), getParts()); }

LogicalResult SumRowsOp::verify() {
  return expectEqual(*this, dim(getResult(), 0), dim(getX(), 1), "result size");
}

LogicalResult RmsNormOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("must keep the type of its input");
  return expectEqual(*this, dim(getWeight(), 0), dim(getX(), 1), "weight size");
}

LogicalResult RmsNormGradOp::verify() {
  if (getX().getType() != getDx().getType() || getX().getType() != getDy().getType())
    return emitOpError("needs dy, x and dx of one type");
  if (failed(expectEqual(*this, dim(getWeight(), 0), dim(getX(), 1), "weight size")))
    return failure();
  return expectEqual(*this, dim(getDweight(), 0), dim(getX(), 1), "dweight size");
}

LogicalResult RopeOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("must keep the type of its input");
  int64_t headDim = getHeadDim();
  if (headDim <= 0 || headDim % 2)
    return emitOpError("needs an even head_dim, has ") << headDim;
  if (dim(getX(), 1) % headDim)
    return emitOpError("has ") << dim(getX(), 1) << " features, not a multiple of head_dim "
                               << headDim;
  if (getCos().getType() != getSin().getType())
    return emitOpError("needs cos and sin of one type");
  if (dim(getCos(), 0) == 0 || dim(getX(), 0) % dim(getCos(), 0))
    return emitOpError("has ") << dim(getX(), 0) << " tokens, not a multiple of the table's "
                               << dim(getCos(), 0) << " positions";
  return expectEqual(*this, dim(getCos(), 1), headDim / 2, "table columns");
}

LogicalResult LinearCrossEntropyOp::verify() {
  if (int64_t(getChunk()) <= 0)
    return emitOpError("needs a positive chunk");
  if (failed(expectEqual(*this, dim(getWeight(), 1), dim(getX(), 1), "weight columns")))
    return failure();
  return expectEqual(*this, dim(getTargets(), 0), dim(getX(), 0), "targets");
}

LogicalResult AdamW8bitOp::verify() {
  auto parameter = cast<RankedTensorType>(getParameter().getType());
  auto float32 = Float32Type::get(getContext());
  int64_t elements = parameter.getNumElements();
  if (parameter.getElementType() != float32 || elements % kBlock)
    return emitOpError("needs f32 parameters in whole blocks of ")
           << kBlock << " elements, has a " << parameter;
  auto scale = cast<RankedTensorType>(getMoment1Scale().getType());
  if (scale.getElementType() != float32 || scale.getNumElements() != elements / kBlock)
    return emitOpError("has scales in a ")
           << scale << " where " << elements / kBlock << " blocks need one f32 each";
  Type codes = parameter.clone(IntegerType::get(getContext(), 8));
  for (Value value : {getMoment1(), getMoment2(), getNewMoment1(), getNewMoment2()})
    if (value.getType() != codes)
      return emitOpError("has moments in a ") << value.getType() << ", expected " << codes;
  for (Value value : {getMoment2Scale(), getNewMoment1Scale(), getNewMoment2Scale()})
    if (value.getType() != scale)
      return emitOpError("has scales of types ") << scale << " and " << value.getType();
  if (getGradient().getType() != parameter || getNewParameter().getType() != parameter)
    return emitOpError("needs parameter and gradient of one type");
  for (Value sums : {getUpdateSq(), getParamSq()})
    if (failed(expectEqual(*this, dim(sums, 0), elements / kBlock, "sums of squares")))
      return failure();
  return success();
}
