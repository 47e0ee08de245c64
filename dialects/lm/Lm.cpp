#include "dialects/lm/Lm.h"

#include "dialects/interfaces/Attention.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;
using namespace lmc;
using namespace lmc::lm;

#include "dialects/lm/LmDialect.cpp.inc"
#include "dialects/lm/LmEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/lm/LmAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/lm/LmOps.cpp.inc"

void LmDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/lm/LmAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/lm/LmOps.cpp.inc"
      >();
}

LogicalResult LmDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() != kLayer)
    return success();
  auto layer = dyn_cast<IntegerAttr>(attribute.getValue());
  if (!isa<func::CallOp>(op) || !layer || !layer.getType().isInteger(64) || layer.getInt() < 0)
    return op->emitOpError("has ") << kLayer << " = " << attribute.getValue()
                                   << "; only a func.call has it, and it is an i64 from 0 on";
  return success();
}

func::CallOp lm::createCallLike(OpBuilder &b, func::CallOp call, func::FuncOp callee,
                                ValueRange operands) {
  auto created = func::CallOp::create(b, call.getLoc(), callee, operands);
  if (Attribute layer = call->getAttr(kLayer))
    created->setAttr(kLayer, layer);
  return created;
}

//===-- Attributes --------------------------------------------------------------------------===//

static FloatAttr f64(MLIRContext *context, double value) {
  return FloatAttr::get(Float64Type::get(context), value);
}

InitAttr InitAttr::normal(MLIRContext *context, double stddev) {
  return get(context, InitKind::Normal, f64(context, stddev), {}, {}, {});
}

InitAttr InitAttr::rope(MLIRContext *context, InitKind cosOrSin, ArrayRef<double> frequencies,
                        double scale) {
  return get(context, cosOrSin, {}, f64(context, scale),
             DenseF64ArrayAttr::get(context, frequencies), {});
}

InitAttr InitAttr::copyOf(StringAttr source) {
  return get(source.getContext(), InitKind::CopyOf, {}, {}, {}, source);
}

LogicalResult InitAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, InitKind kind,
                               FloatAttr stddev, FloatAttr scale, DenseF64ArrayAttr frequencies,
                               StringAttr source) {
  bool isTable = kind == InitKind::RopeCos || kind == InitKind::RopeSin;
  auto expect = [&](StringRef name, bool given, bool wanted) -> LogicalResult {
    if (given == wanted)
      return success();
    return emitError() << "initial values of the kind " << stringifyInitKind(kind)
                       << (given ? " take no " : " need a ") << name;
  };
  if (failed(expect("stddev", bool(stddev), kind == InitKind::Normal)) ||
      failed(expect("scale", bool(scale), isTable || kind == InitKind::Constant)) ||
      failed(expect("list of frequencies", bool(frequencies), isTable)))
    return failure();
  return expect("source", bool(source), kind == InitKind::CopyOf);
}

LogicalResult PartAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, StringAttr name,
                               int64_t rows, InitAttr, int64_t columns) {
  if (rows > 0 && columns >= 0)
    return success();
  return emitError() << "part " << name << " has " << rows << " rows and " << columns << " columns";
}

int64_t ShardedAttr::getExtent() const {
  RankedTensorType type = getType();
  return getPitch() ? (type.getDimSize(0) - 1) * getPitch() + type.getDimSize(1)
                    : type.getNumElements();
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
                       Type type, InitAttr init, bool weightDecay, StringAttr parameter) {
  build(b, state, b.getStringAttr(name), VariableKindAttr::get(b.getContext(), kind),
        TypeAttr::get(type), init, weightDecay ? b.getUnitAttr() : UnitAttr(), UnitAttr(),
        DenseI64ArrayAttr(), parameter, ArrayAttr(), FlatSymbolRefAttr(), IntegerAttr(), UnitAttr(),
        StringAttr(), StepValueAttr(), IntegerAttr(), ArrayAttr(), GroupAttr(), FloatAttr());
}

LogicalResult VariableOp::verify() {
  if (getStorage().has_value() != getStorageOffset().has_value())
    return emitOpError("has a storage without an offset in it, or the reverse");
  if ((getSetting() || getStepValue()) && getKind() != VariableKind::Scalar)
    return emitOpError("is no scalar, and has a setting or a step_value");
  if (getSetting() && getStepValue())
    return emitOpError("has both a setting and a step_value");
  const bool isOfGroup = getStepValue() == StepValue::GroupLearningRate ||
                         getStepValue() == StepValue::GroupMuonLearningRate;
  if (isOfGroup && !getGroup())
    return emitOpError("is the learning rate of a group, and has none");
  if (getGroup() && !isOfGroup && getKind() != VariableKind::Parameter)
    return emitOpError("has a group, and is neither a parameter nor the learning rate of a group");
  if (getShards().has_value() != getSharded().has_value())
    return emitOpError("lists the tensors that ranks divide without the number of ranks, or the "
                       "reverse");
  if (getShards()) {
    const int64_t elements =
        cast<RankedTensorType>(getType()).getNumElements() * int64_t(*getShards());
    int64_t end = 0;
    for (auto tensor : getShardedAttr().getAsRange<ShardedAttr>()) {
      if (tensor.getPitch() &&
          (tensor.getType().getRank() != 2 || tensor.getPitch() < tensor.getType().getDimSize(1)))
        return emitOpError("has the tensor ")
               << tensor.getName() << " of " << tensor.getType() << " with rows "
               << tensor.getPitch() << " elements apart";
      if (tensor.getOffset() < end || tensor.getExtent() > elements - end)
        return emitOpError("has the tensor ") << tensor.getName() << " at element "
                                              << tensor.getOffset() << ", over another tensor or "
                                              << "past the end of " << elements << " elements";
      end = tensor.getOffset() + tensor.getExtent();
    }
    if (end > elements)
      return emitOpError("has tensors of ") << end << " elements, but only " << elements;
  }
  auto type = cast<RankedTensorType>(getType());
  if (std::optional<ArrayRef<int64_t>> columns = getColumns())
    if (type.getRank() != 2 || type.getDimSize(1) != llvm::sum_of(*columns) ||
        llvm::any_of(*columns, [](int64_t count) { return count < 1; }))
      return emitOpError("has linear maps to [") << *columns << "] columns, but is a " << type;
  if (!getParts())
    return success();
  int64_t rows = 0;
  for (auto part : getPartsAttr().getAsRange<PartAttr>()) {
    if (part.getColumns() && (type.getRank() != 2 || part.getColumns() > type.getDimSize(1)))
      return emitOpError("has a part of ") << part.getColumns() << " columns, but is a " << type;
    rows += part.getRows();
  }
  if (type.getRank() == 0 || rows != type.getDimSize(0) * int64_t(getGroups()))
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

LogicalResult EmbeddingOp::verify() {
  if (failed(expectEqual(*this, extent(getResult(), 0), extent(getIds(), 0), "result rows")))
    return failure();
  return expectEqual(*this, extent(getResult(), 1), extent(getTable(), 1), "result columns");
}

LogicalResult EmbeddingGradOp::verify() {
  if (failed(expectEqual(*this, extent(getDy(), 0), extent(getIds(), 0), "dy rows")))
    return failure();
  if (getAcc() && getAcc().getType() != getType())
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return expectEqual(*this, extent(getResult(), 1), extent(getDy(), 1), "result columns");
}

LogicalResult MatmulOp::verify() {
  int64_t m = extent(getA(), getTransposeA() ? 1 : 0), ka = extent(getA(), getTransposeA() ? 0 : 1);
  int64_t kb = extent(getB(), getTransposeB() ? 1 : 0), n = extent(getB(), getTransposeB() ? 0 : 1);
  if (failed(expectEqual(*this, kb, ka, "contraction size of b")) ||
      failed(expectEqual(*this, extent(getResult(), 0), m, "result rows")))
    return failure();
  if (getAcc() && getAcc().getType() != getType())
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return expectEqual(*this, extent(getResult(), 1), n, "result columns");
}

LogicalResult Fp8ScaleOp::verify() {
  if (!isEightBits(getDtype()))
    return emitOpError("has the dtype ") << getDtype() << "; give f8E4M3FN or f8E5M2";
  return success();
}

LogicalResult PieceMaxAbsOp::verify() {
  return expectEqual(*this, extent(getResult(), 0), int64_t(getStarts().size()), "tensors");
}

LogicalResult RanksFp8ScaleOp::verify() {
  if (!isEightBits(getDtype()))
    return emitOpError("has the dtype ") << getDtype() << "; give f8E4M3FN or f8E5M2";
  const int64_t scales = extent(getResult(), 0);
  if (scales == 0 || extent(getMax(), 0) % scales != 0)
    return emitOpError("makes ") << scales << " scales of " << extent(getMax(), 0) << " values";
  return success();
}

LogicalResult PieceQuantizeOp::verify() {
  if (getCodes().getType().getShape() != getPiece().getType().getShape())
    return emitOpError("rounds ") << getPiece().getType() << " to " << getCodes().getType();
  return expectEqual(*this, int64_t(getScales().size()), int64_t(getStarts().size()), "scales");
}

LogicalResult RowScalesOp::verify() {
  if (!isEightBits(getDtype()))
    return emitOpError("has the dtype ") << getDtype() << "; give f8E4M3FN or f8E5M2";
  return expectEqual(*this, extent(getResult(), 0), extent(getX(), 0), "scales");
}

LogicalResult TileScalesOp::verify() {
  if (extent(getX(), 0) == extent(getResult(), 0) * kScaleBlock &&
      extent(getX(), 1) <= extent(getResult(), 1))
    return success();
  return emitOpError("makes the scales ") << getResult().getType() << " of " << getX().getType();
}

LogicalResult TransposeScalesOp::verify() {
  if (extent(getX(), 0) <= extent(getResult(), 1) && extent(getResult(), 0) <= extent(getX(), 1))
    return success();
  return emitOpError("transposes ") << getX().getType() << " to " << getResult().getType();
}

LogicalResult PieceQuantizeTilesOp::verify() {
  if (getCodes().getType().getShape() != getPiece().getType().getShape() ||
      extent(getPiece(), 1) != kScaleBlock)
    return emitOpError("rounds ") << getPiece().getType() << " to " << getCodes().getType();
  const auto tensors = int64_t(getStarts().size());
  if (getGroups() < 1)
    return emitOpError("has ") << getGroups() << " groups";
  if (failed(expectEqual(*this, int64_t(getScales().size()), tensors, "scales")) ||
      failed(expectEqual(*this, int64_t(getColumns().size()), tensors, "columns")))
    return failure();
  int64_t end = 0; // of the tensors so far, in blocks
  for (auto [scales, columns, start] : llvm::zip_equal(getScales(), getColumns(), getStarts())) {
    if (columns < 1 || columns > extent(scales, 1))
      return emitOpError("has the scales ")
             << scales.getType() << " for " << columns << " blocks a row";
    if (start < end)
      return emitOpError("has a tensor that starts at block ")
             << start << "; those before it end at " << end;
    end = start + extent(scales, 0) * kScaleBlock * columns;
  }
  return success();
}

// Checks that `y` has the dtype and the transposed shape of `x`.
static LogicalResult verifyTranspose(Operation *op, RankedTensorType x, RankedTensorType y) {
  if (y == x.clone(SmallVector<int64_t>{x.getDimSize(1), x.getDimSize(0)}))
    return success();
  return op->emitOpError("transposes ") << x << " to " << y;
}

LogicalResult TransposeOp::verify() {
  return verifyTranspose(*this, getX().getType(), getY().getType());
}

LogicalResult QuantizeTransposedOp::verify() {
  if (getCodes().getType().getShape() != getX().getType().getShape())
    return emitOpError("rounds ") << getX().getType() << " to " << getCodes().getType();
  return verifyTranspose(*this, getCodes().getType(), getTransposed().getType());
}

// Checks `codes` and `scales`, results of a cast of x with scales for blocks, and that x has whole
// blocks along `dims`.
static LogicalResult verifyBlocks(Operation *op, RankedTensorType x, Value codes, Value scales,
                                  ArrayRef<unsigned> dims, ArrayRef<int64_t> codesShape,
                                  ArrayRef<int64_t> scalesShape) {
  for (unsigned dim : dims)
    if (x.getDimSize(dim) % kScaleBlock != 0)
      return op->emitOpError("casts ") << x << " in blocks of " << kScaleBlock;
  if (tensorTypeOf(codes).getShape() == codesShape &&
      tensorTypeOf(scales).getShape() == scalesShape)
    return success();
  return op->emitOpError("casts ")
         << x << " to " << codes.getType() << " with scales " << scales.getType();
}

static LogicalResult verifyRowCodes(Operation *op, RankedTensorType x, Value codes, Value scales) {
  const int64_t rows = x.getDimSize(0), columns = x.getDimSize(1);
  return verifyBlocks(op, x, codes, scales, {1}, {rows, columns}, {columns / kScaleBlock, rows});
}

static LogicalResult verifyColumnCodes(Operation *op, RankedTensorType x, Value codes,
                                       Value scales) {
  const int64_t rows = x.getDimSize(0), columns = x.getDimSize(1);
  return verifyBlocks(op, x, codes, scales, {0}, {columns, rows}, {rows / kScaleBlock, columns});
}

// Returns false if the scales of the tiles of a tensor of type `x` are as many as tiles. Scales of
// any other shape must be the padded ones.
static bool isPadded(RankedTensorType x, Value scales) {
  return tensorTypeOf(scales).getShape() != ArrayRef(scalesOfTiles(x, /*padded=*/false));
}

static LogicalResult verifyTileCodes(Operation *op, Value x, Value codes, Value scales) {
  const RankedTensorType type = tensorTypeOf(x);
  return verifyBlocks(op, type, codes, scales, {0, 1}, type.getShape(),
                      scalesOfTiles(type, isPadded(type, scales)));
}

static LogicalResult verifyTurnedTileCodes(Operation *op, Value x, Value codes, Value scales) {
  const RankedTensorType turned =
      tensorTypeOf(x).clone(SmallVector<int64_t>{extent(x, 1), extent(x, 0)});
  return verifyBlocks(op, tensorTypeOf(x), codes, scales, {0, 1}, turned.getShape(),
                      scalesOfTiles(turned, isPadded(turned, scales)));
}

LogicalResult QuantizeRowsOp::verify() {
  return verifyRowCodes(*this, getX().getType(), getCodes(), getScales());
}

LogicalResult QuantizeWholeRowsOp::verify() {
  return verifyBlocks(*this, getX().getType(), getCodes(), getScales(), {},
                      getX().getType().getShape(), {extent(getX(), 0)});
}

LogicalResult DequantizeOp::verify() {
  auto scale = cast<RankedTensorType>(getScale().getType());
  if (getResult().getType().getShape() == getCodes().getType().getShape() &&
      (scale.getRank() == 0 || scale.getDimSize(0) == extent(getCodes(), 0)))
    return success();
  return emitOpError("turns ") << getCodes().getType() << " with scales " << scale << " into "
                               << getResult().getType();
}

LogicalResult QuantizeColumnsOp::verify() {
  return verifyColumnCodes(*this, getX().getType(), getCodes(), getScales());
}

// Checks the results of a cast of rows and of columns of a matrix of type `x`.
template <typename Op> static LogicalResult verifyBothWays(Op op, RankedTensorType x) {
  if (failed(verifyRowCodes(op, x, op.getCodes(), op.getScales())))
    return failure();
  return verifyColumnCodes(op, x, op.getTransposed(), op.getTransposedScales());
}

LogicalResult QuantizeRowsColumnsOp::verify() { return verifyBothWays(*this, getX().getType()); }

// Returns the type of a half of each row of `gu`.
static RankedTensorType halfOf(RankedTensorType gu) {
  return gu.clone(SmallVector<int64_t>{gu.getDimSize(0), gu.getDimSize(1) / 2});
}

LogicalResult SwigluQuantizeOp::verify() {
  return verifyBothWays(*this, halfOf(getGu().getType()));
}

LogicalResult SwigluQuantizeRowsOp::verify() {
  return verifyRowCodes(*this, halfOf(getGu().getType()), getCodes(), getScales());
}

LogicalResult SwigluQuantizeColumnsOp::verify() {
  return verifyColumnCodes(*this, halfOf(getGu().getType()), getCodes(), getScales());
}

LogicalResult SwigluGradQuantizeOp::verify() {
  const RankedTensorType gu = getGu().getType();
  if (getDy().getType() != halfOf(gu))
    return emitOpError("has the gradient ") << getDy().getType() << " for halves of " << gu;
  return verifyBothWays(*this, gu);
}

// Checks that `weight` has an element for each column of x, and `reciprocals` one for each row.
static LogicalResult verifyNormedCast(Operation *op, RankedTensorType x, Value weight,
                                      Value reciprocals) {
  if (extent(weight, 0) == x.getDimSize(1) && extent(reciprocals, 0) == x.getDimSize(0))
    return success();
  return op->emitOpError("has the weight ")
         << weight.getType() << " and the reciprocals " << reciprocals.getType() << " for " << x;
}

LogicalResult NormQuantizeRowsOp::verify() {
  const RankedTensorType x = getX().getType();
  if (failed(verifyNormedCast(*this, x, getWeight(), getReciprocals())))
    return failure();
  return verifyRowCodes(*this, x, getCodes(), getScales());
}

LogicalResult NormQuantizeColumnsOp::verify() {
  const RankedTensorType x = getX().getType();
  if (failed(verifyNormedCast(*this, x, getWeight(), getReciprocals())))
    return failure();
  if (x.getDimSize(1) % kScaleBlock != 0)
    return emitOpError("casts ") << x << " in blocks of " << kScaleBlock;
  return verifyColumnCodes(*this, x, getCodes(), getScales());
}

LogicalResult ReciprocalRmsOp::verify() {
  if (extent(getReciprocals(), 0) == extent(getX(), 0))
    return success();
  return emitOpError("has ") << getReciprocals().getType() << " for the rows of "
                             << getX().getType();
}

LogicalResult QuantizeTilesOp::verify() {
  return verifyTileCodes(*this, getX(), getCodes(), getScales());
}

LogicalResult QuantizeTilesBothOp::verify() {
  if (failed(verifyTileCodes(*this, getX(), getCodes(), getScales())))
    return failure();
  return verifyTurnedTileCodes(*this, getX(), getTransposed(), getTransposedScales());
}

LogicalResult ScaledMatmulOp::verify() {
  int64_t m = extent(getA(), getTransposeA() ? 1 : 0), ka = extent(getA(), getTransposeA() ? 0 : 1);
  int64_t kb = extent(getB(), getTransposeB() ? 1 : 0), n = extent(getB(), getTransposeB() ? 0 : 1);
  if (failed(expectEqual(*this, kb, ka, "contraction size of b")) ||
      failed(expectEqual(*this, extent(getResult(), 0), m, "result rows")) ||
      failed(expectEqual(*this, extent(getResult(), 1), n, "result columns")))
    return failure();
  auto ranks = [](Value scale) { return cast<RankedTensorType>(scale.getType()).getRank(); };
  if (ranks(getScaleA()) != ranks(getScaleB()) || ranks(getScaleA()) % 2 != 0 ||
      (getTiles() && ranks(getScaleA()) == 0))
    return emitOpError("has scales of types ")
           << getScaleA().getType() << " and " << getScaleB().getType();
  if (ranks(getScaleA()) == 2) {
    auto shapeOf = [](Value scale) { return cast<RankedTensorType>(scale.getType()).getShape(); };
    const SmallVector<int64_t> ofA{ka / kScaleBlock, m},
        ofB = getTiles() ? scalesOfTiles(getB().getType())
                         : SmallVector<int64_t>{ka / kScaleBlock, n};
    if (ka % kScaleBlock != 0 || getTransposeA() || (!getTiles() && !getTransposeB()) ||
        shapeOf(getScaleA()) != ArrayRef(ofA) || shapeOf(getScaleB()) != ArrayRef(ofB))
      return emitOpError("has scales of types ")
             << getScaleA().getType() << " and " << getScaleB().getType() << " for blocks of "
             << getA().getType() << " and " << getB().getType();
  }
  if (getBias() && failed(expectEqual(*this, extent(getBias(), 0), n, "bias size")))
    return failure();
  for (Value added : {getAcc(), getResidual()})
    if (added && added.getType() != getType())
      return emitOpError("adds a matrix of type ") << added.getType();
  if (getGradDtype() && !isEightBits(*getGradDtype()))
    return emitOpError("has the grad_dtype ") << *getGradDtype() << "; give f8E4M3FN or f8E5M2";
  return success();
}

LogicalResult LinearOp::verify() {
  const bool transposed = getTransposed();
  const int64_t in = extent(getWeight(), transposed ? 0 : 1),
                out = extent(getWeight(), transposed ? 1 : 0);
  if (failed(expectEqual(*this, in, extent(getX(), 1),
                         transposed ? "weight rows" : "weight columns")) ||
      failed(expectEqual(*this, extent(getResult(), 0), extent(getX(), 0), "result rows")))
    return failure();
  if (getBias() && failed(expectEqual(*this, extent(getBias(), 0), out, "bias size")))
    return failure();
  if (getResidual() && getResidual().getType() != getType())
    return emitOpError("has a residual of type ") << getResidual().getType();
  return expectEqual(*this, extent(getResult(), 1), out, "result columns");
}

// Fails unless `halves` has the rows and element type of `a`, and twice its columns.
static LogicalResult verifyHalves(Operation *op, Value halves, Value a) {
  auto type = tensorTypeOf(halves), half = tensorTypeOf(a);
  if (type.getElementType() != half.getElementType())
    return op->emitOpError("has a of type ") << half << " for halves of " << type;
  if (failed(expectEqual(op, extent(a, 0), extent(halves, 0), "rows of a")))
    return failure();
  return expectEqual(op, extent(halves, 1), 2 * extent(a, 1), "columns of the halves");
}

LogicalResult LinearSwigluOp::verify() {
  if (failed(expectEqual(*this, extent(getWeight(), 1), extent(getX(), 1), "weight columns")) ||
      failed(expectEqual(*this, extent(getGu(), 0), extent(getX(), 0), "result rows")) ||
      failed(expectEqual(*this, extent(getGu(), 1), extent(getWeight(), 0), "result columns")))
    return failure();
  return verifyHalves(*this, getGu(), getA());
}

LogicalResult SwigluLinearGradOp::verify() {
  if (getDgu().getType() != getGu().getType())
    return emitOpError("has a gradient of another type than gu");
  if (failed(expectEqual(*this, extent(getWeight(), 0), extent(getDy(), 1), "weight rows")) ||
      failed(expectEqual(*this, extent(getA(), 0), extent(getDy(), 0), "result rows")) ||
      failed(expectEqual(*this, extent(getA(), 1), extent(getWeight(), 1), "result columns")))
    return failure();
  return verifyHalves(*this, getGu(), getA());
}

// Fails unless the parts, joined along their columns, have the type of `whole`.
static LogicalResult verifyColumns(Operation *op, Value whole, ValueRange parts) {
  auto type = tensorTypeOf(whole);
  int64_t columns = 0;
  for (Value part : parts) {
    auto partType = tensorTypeOf(part);
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
  return expectEqual(*this, extent(getResult(), 0), extent(getX(), 1), "result size");
}

// Fails unless the number of columns of `x` is a multiple of the number of elements of `weight`.
static LogicalResult expectGroups(Operation *op, Value x, Value weight) {
  int64_t columns = extent(x, 1), size = extent(weight, 0);
  if (size > 0 && columns % size == 0)
    return success();
  return op->emitOpError("has ") << columns << " features, not a multiple of the weight size "
                                 << size;
}

LogicalResult RmsNormOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("must keep the type of its input");
  return expectGroups(*this, getX(), getWeight());
}

LogicalResult RmsNormGradOp::verify() {
  if (getX().getType() != getDx().getType() || getX().getType() != getDy().getType())
    return emitOpError("needs dy, x and dx of one type");
  if (failed(expectGroups(*this, getX(), getWeight())))
    return failure();
  return expectEqual(*this, extent(getDweight(), 0), extent(getWeight(), 0), "dweight size");
}

LogicalResult LayerNormOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("must keep the type of its input");
  if (failed(expectEqual(*this, extent(getWeight(), 0), extent(getX(), 1), "weight size")))
    return failure();
  if (getBias().getType() != getWeight().getType())
    return emitOpError("needs weight and bias of one type");
  return success();
}

LogicalResult LayerNormGradOp::verify() {
  if (getX().getType() != getDx().getType() || getX().getType() != getDy().getType())
    return emitOpError("needs dy, x and dx of one type");
  if (failed(expectEqual(*this, extent(getWeight(), 0), extent(getX(), 1), "weight size")))
    return failure();
  if (getDbias().getType() != getDweight().getType())
    return emitOpError("needs dweight and dbias of one type");
  return expectEqual(*this, extent(getDweight(), 0), extent(getWeight(), 0), "dweight size");
}

LogicalResult RopeOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("must keep the type of its input");
  int64_t headDim = getHeadDim();
  if (headDim <= 0 || headDim % 2)
    return emitOpError("needs an even head_dim, has ") << headDim;
  if (extent(getX(), 1) % headDim)
    return emitOpError("has ") << extent(getX(), 1) << " features, not a multiple of head_dim "
                               << headDim;
  if (getCos().getType() != getSin().getType())
    return emitOpError("needs cos and sin of one type");
  if (extent(getCos(), 0) == 0 || extent(getX(), 0) % extent(getCos(), 0))
    return emitOpError("has ") << extent(getX(), 0) << " tokens, not a multiple of the table's "
                               << extent(getCos(), 0) << " positions";
  return expectEqual(*this, extent(getCos(), 1), headDim / 2, "table columns");
}

template <typename Op> static LogicalResult verifyLoss(Op op) {
  if (int64_t(op.getChunk()) <= 0)
    return op.emitOpError("needs a positive chunk");
  if (failed(expectEqual(op, extent(op.getWeight(), 1), extent(op.getX(), 1), "weight columns")))
    return failure();
  if (int64_t classes = int64_t(op.getClasses());
      classes < 0 || classes > extent(op.getWeight(), 0))
    return op.emitOpError("has ") << classes << " classes, but a weight of "
                                  << extent(op.getWeight(), 0) << " rows";
  if (op.getZLoss() && !(op.getZLoss()->convertToDouble() > 0))
    return op.emitOpError("needs a positive z_loss");
  return expectEqual(op, extent(op.getTargets(), 0), extent(op.getX(), 0), "targets");
}

LogicalResult LinearCrossEntropyOp::verify() { return verifyLoss(*this); }

LogicalResult LinearCrossEntropyGradOp::verify() {
  if (failed(verifyLoss(*this)))
    return failure();
  if (getScale().getType() != getLoss().getType())
    return emitOpError("needs loss and scale of one type");
  if (getDx().getType() != getX().getType())
    return emitOpError("must give dx the type of x");
  auto weight = cast<RankedTensorType>(getWeight().getType());
  if (cast<RankedTensorType>(getDweight().getType()).getShape() != weight.getShape())
    return emitOpError("must give dweight the shape of weight");
  if (getAcc() && getAcc().getType() != getDweight().getType())
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return success();
}

//===-- Norms -------------------------------------------------------------------------------===//

static Type elementOf(Value value) { return tensorTypeOf(value).getElementType(); }

LogicalResult ScaledCastOp::verify() {
  if (elementOf(getX()) == elementOf(getResult()))
    return emitOpError("must cast from f32 to f16 or from f16 to f32");
  if (int64_t(getRanks()) < 1)
    return emitOpError("needs at least one rank");
  return success();
}

LogicalResult ScaleOp::verify() {
  if (getX().getType() != getType())
    return emitOpError("must keep the type of its input");
  if (elementOf(getFactor()) != elementOf(getX()))
    return emitOpError("has elements of ")
           << elementOf(getX()) << " but a factor of " << elementOf(getFactor());
  return success();
}

// Verifies the element type of `norm`. It must be f64 if all values are f64, and f32 if none is.
static LogicalResult verifyNorm(Operation *op, ValueRange values, Value norm) {
  if (values.empty())
    return op->emitOpError("needs an operand");
  for (Value value : values)
    if (elementOf(value).isF64() != elementOf(norm).isF64() || elementOf(norm).isBF16())
      return op->emitOpError("has a result of ")
             << elementOf(norm) << " for elements of " << elementOf(value);
  return success();
}

LogicalResult GlobalNormOp::verify() { return verifyNorm(*this, getInputs(), getResult()); }
LogicalResult NormOfPartsOp::verify() { return verifyNorm(*this, getParts(), getResult()); }

LogicalResult GuardNormOp::verify() {
  for (Value operand : getOperands())
    if (operand.getType() != getResult().getType())
      return emitOpError("has operands of ")
             << operand.getType() << " and a result of " << getResult().getType();
  return success();
}

//===-- Optimizers --------------------------------------------------------------------------===//

static constexpr OptimizerScalar kAdamWScalars[] = {
    {.name = "run.lr", .stepValue = StepValue::LearningRate},
    {.name = "run.beta1", .setting = "optimizer.beta1"},
    {.name = "run.beta2", .setting = "optimizer.beta2"},
    {.name = "run.eps", .setting = "optimizer.eps"},
    {.name = "run.weight_decay", .setting = "optimizer.weight_decay", .decays = true},
    {.name = "run.bias_correction1", .stepValue = StepValue::BiasCorrection1},
    {.name = "run.bias_correction2", .stepValue = StepValue::BiasCorrection2},
    {.name = "run.clip_grad", .setting = "optimizer.clip_grad"},
};

ArrayRef<OptimizerScalar> AdamWOp::getScalars() { return kAdamWScalars; }

SmallVector<OptimizerState> AdamWOp::getStates(RankedTensorType parameter) {
  return {{VariableKind::Moment1, parameter}, {VariableKind::Moment2, parameter}};
}

LogicalResult AdamWOp::verify() {
  auto parameter = cast<RankedTensorType>(getParameter().getType());
  for (Value value : {getGradient(), getMoment1(), getMoment2(), getNewParameter(), getNewMoment1(),
                      getNewMoment2()})
    if (value.getType() != parameter)
      return emitOpError("needs parameter, gradient and moments of one type, has ")
             << parameter << " and " << value.getType();
  for (Value sums : {getUpdateSq(), getParamSq()})
    if (failed(expectEqual(*this, extent(sums, 0), getNumSums(parameter), "sums of squares")))
      return failure();
  if (getCompute() &&
      cast<RankedTensorType>(getCompute().getType()).getShape() != parameter.getShape())
    return emitOpError("has a compute copy of type ")
           << getCompute().getType() << " for a parameter of type " << parameter;
  return success();
}

ArrayRef<OptimizerScalar> AdamW8bitOp::getScalars() { return kAdamWScalars; }

SmallVector<OptimizerState> AdamW8bitOp::getStates(RankedTensorType parameter) {
  auto codes = parameter.clone(IntegerType::get(parameter.getContext(), 8));
  auto scales = RankedTensorType::get({getNumSums(parameter)}, parameter.getElementType());
  return {{VariableKind::Moment1, codes},
          {VariableKind::Moment1Scale, scales},
          {VariableKind::Moment2, codes},
          {VariableKind::Moment2Scale, scales}};
}

int64_t AdamW8bitOp::getNumSums(RankedTensorType parameter) {
  return parameter.getNumElements() / kBlock;
}

// Only matrices get 8-bit moments. Vectors (norms and biases) are small and need more precision.
bool AdamW8bitOp::takes(const SteppedParameter &parameter) {
  return !parameter.keepsF32Moments && parameter.type.getRank() == 2 &&
         parameter.type.getElementType().isF32() &&
         llvm::all_of(parameter.partRows, [&](int64_t rows) {
           return rows * parameter.type.getDimSize(1) % kBlock == 0;
         });
}

StringRef AdamW8bitOp::getFallback() { return "adamw"; }
StringRef AdamW8bitOp::getStepName() { return "adamw"; }

StringRef AdamW8bitOp::getRequirement() {
  static_assert(kBlock == 256);
  return "keeps moments of f32 matrices in 8 bits whose elements are a multiple of 256";
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
    if (failed(expectEqual(*this, extent(sums, 0), elements / kBlock, "sums of squares")))
      return failure();
  return success();
}

//===-- The bias of a router ----------------------------------------------------------------===//

ArrayRef<OptimizerScalar> BalanceBiasOp::getScalars() {
  static constexpr OptimizerScalar scalars[] = {
      {.name = "run.router_bias_update_speed", .setting = "optimizer.router_bias_update_speed"},
  };
  return scalars;
}

SmallVector<OptimizerState> BalanceBiasOp::getStates(RankedTensorType) { return {}; }

// The op updates only the bias of a router, which has no gradient.
bool BalanceBiasOp::takes(const SteppedParameter &) { return false; }
StringRef BalanceBiasOp::getFallback() { return "adamw"; }
StringRef BalanceBiasOp::getRequirement() { return "steps the biases of routers alone"; }

//===-- Muon --------------------------------------------------------------------------------===//

ArrayRef<OptimizerScalar> MuonOp::getScalars() {
  static constexpr OptimizerScalar scalars[] = {
      {.name = "run.muon_lr", .stepValue = StepValue::MuonLearningRate},
      {.name = "run.muon_momentum", .setting = "optimizer.muon_momentum"},
      {.name = "run.muon_eps", .setting = "optimizer.muon_eps"},
      {.name = "run.weight_decay", .setting = "optimizer.weight_decay", .decays = true},
      {.name = "run.clip_grad", .setting = "optimizer.clip_grad"},
  };
  return scalars;
}

SmallVector<OptimizerState> MuonOp::getStates(RankedTensorType parameter) {
  return {{VariableKind::Moment1, parameter}};
}

// Only matrices of layers are supported, not the embedding, the head, norms or biases.
bool MuonOp::takes(const SteppedParameter &parameter) {
  return parameter.isHidden && parameter.type.getRank() == 2;
}

StringRef MuonOp::getFallback() { return "adamw"; }
StringRef MuonOp::getRequirement() { return "steps matrices of layers"; }

static LogicalResult verifyCoefficients(Operation *op, ArrayRef<double> coefficients) {
  if (coefficients.size() == 3)
    return success();
  return op->emitOpError("has ") << coefficients.size() << " coefficients, expected 3";
}

// Checks that the matrices are in ascending order, do not overlap, and lie in [0, elements).
static LogicalResult verifyMatrices(Operation *op, ArrayAttr matrices, int64_t elements) {
  // Earlier blocks end at element `end`. The next matrix begins at column `column` of its block.
  int64_t end = 0, column = 0;
  for (auto matrix : matrices.getAsRange<MatrixAttr>()) {
    const int64_t pitch = matrix.getPitch(), begin = column ? end : matrix.getOffset();
    const bool fansIn = matrix.getTransposed() ? matrix.getFanIn() == matrix.getRows()
                                               : matrix.getFanIn() <= matrix.getColumns();
    if (matrix.getRows() < 1 || matrix.getFanIn() < 1 || !fansIn || begin < end ||
        matrix.getColumn() != column || (column && !pitch))
      return op->emitOpError("has the matrix ") << matrix << " at element " << end;
    column += matrix.getColumns();
    if (pitch && column > pitch)
      return op->emitOpError("has the matrix ")
             << matrix << " in a block of " << pitch << " columns";
    if (pitch && column < pitch)
      continue;
    column = 0;
    end = matrix.getOffset() + matrix.getRows() * (pitch ? pitch : matrix.getColumns());
  }
  if (column)
    return op->emitOpError("has a block whose matrices end at column ") << column;
  if (end > elements)
    return op->emitOpError("has matrices of ") << end << " elements in a tensor of " << elements;
  return success();
}

LogicalResult MuonOp::verify() {
  auto parameter = cast<RankedTensorType>(getParameter().getType());
  for (Value value : {getGradient(), getMoment1(), getNewParameter(), getNewMoment1()})
    if (value.getType() != parameter)
      return emitOpError("needs parameter, gradient and momentum of one type, has ")
             << parameter << " and " << value.getType();
  for (Value sums : {getUpdateSq(), getParamSq()})
    if (failed(expectEqual(*this, extent(sums, 0), getNumSums(parameter), "sums of squares")))
      return failure();
  if (failed(verifyCoefficients(*this, getNsCoefficients())))
    return failure();
  // The list has all matrices of the parameter, also those outside of this rank's piece of it.
  return verifyMatrices(*this, getMatricesAttr(), std::numeric_limits<int64_t>::max());
}

LogicalResult OrthogonalizeOp::verify() {
  const int64_t rows = int64_t(getRows());
  if (rows < 1 || extent(getX(), 0) % rows != 0)
    return emitOpError("has matrices of ") << rows << " rows in a " << getX().getType();
  return verifyCoefficients(*this, getNsCoefficients());
}

LogicalResult ScaleMatricesOp::verify() {
  if (failed(
          expectEqual(*this, int64_t(getParts().size()), int64_t(getMatrices().size()), "parts")))
    return failure();
  for (auto [part, matrix] : llvm::zip(getParts(), getMatrices().getAsRange<MatrixAttr>()))
    if (extent(part, 0) != matrix.getRows() || extent(part, 1) != matrix.getColumns())
      return emitOpError("has a part of type ") << part.getType() << " for " << matrix;
  return verifyMatrices(*this, getMatricesAttr(),
                        cast<RankedTensorType>(getResult().getType()).getNumElements());
}

LogicalResult OwnRowsOp::verify() {
  auto whole = cast<RankedTensorType>(getWhole().getType());
  RankedTensorType own = getResult().getType();
  if (own.getElementType() != whole.getElementType() || own.getDimSize(1) != whole.getDimSize(1) ||
      own.getDimSize(0) == 0 || whole.getDimSize(0) % own.getDimSize(0) != 0)
    return emitOpError("takes a ") << own << " from a " << whole;
  return success();
}
