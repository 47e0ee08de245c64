#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lmc::kern;

#include "dialects/kern/KernDialect.cpp.inc"
#include "dialects/kern/KernEnums.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/kern/KernOps.cpp.inc"

namespace {
struct KernInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void KernDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/kern/KernOps.cpp.inc"
      >();
  addInterfaces<KernInliner>();
}

// kern.fusion HERO (%arg = %input : type, ...) -> types { body } attr-dict
ParseResult FusionOp::parse(OpAsmParser &parser, OperationState &result) {
  StringRef heroName;
  SMLoc heroLoc = parser.getCurrentLocation();
  if (parser.parseKeyword(&heroName))
    return failure();
  std::optional<Hero> hero = symbolizeHero(heroName);
  if (!hero)
    return parser.emitError(heroLoc, "unknown hero '") << heroName << "'";
  result.addAttribute("hero", HeroAttr::get(parser.getContext(), *hero));

  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  auto parseOne = [&]() -> ParseResult {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    OpAsmParser::UnresolvedOperand &operand = operands.emplace_back();
    return failure(parser.parseArgument(argument) || parser.parseEqual() ||
                   parser.parseOperand(operand) || parser.parseColonType(argument.type));
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, parseOne) ||
      parser.parseArrowTypeList(result.types) ||
      parser.parseRegion(*result.addRegion(), arguments) ||
      parser.parseOptionalAttrDict(result.attributes))
    return failure();
  for (auto [argument, operand] : llvm::zip(arguments, operands))
    if (parser.resolveOperand(operand, argument.type, result.operands))
      return failure();
  return success();
}

void FusionOp::print(OpAsmPrinter &printer) {
  printer << " " << stringifyHero(getHero()) << " (";
  llvm::interleaveComma(llvm::zip(getBody().getArguments(), getInputs()), printer, [&](auto pair) {
    auto [argument, input] = pair;
    printer << argument << " = " << input << " : " << input.getType();
  });
  printer << ")";
  printer.printArrowTypeList(getResultTypes());
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
  printer.printOptionalAttrDict((*this)->getAttrs(), {"hero"});
}

LogicalResult FusionOp::verify() {
  Block &body = getBody().front();
  if (body.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("has block arguments that differ from its inputs");
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield || yield.getValues().getTypes() != getResultTypes())
    return emitOpError("must end in a kern.yield of its result types");
  for (Operation &op : body.without_terminator())
    if (!isa<linalg::GenericOp, linalg::FillOp, tensor::EmptyOp, tensor::InsertSliceOp,
             arith::ConstantOp>(op))
      return op.emitOpError("is not allowed in a kern.fusion; only linalg.generic, linalg.fill, "
                            "tensor.empty, tensor.insert_slice and arith.constant are");
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("refers to ") << getKernelAttr() << ", which is no kern.kernel";
  Block &body = kernel.getBody().front();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (body.getArgumentTypes() != getInputs().getTypes() || !yield ||
      yield.getValues().getTypes() != getResultTypes())
    return emitOpError("has other types than ") << getKernelAttr();
  return success();
}

LogicalResult GemmOp::verify() {
  auto a = cast<RankedTensorType>(getA().getType()), b = cast<RankedTensorType>(getB().getType());
  RankedTensorType d = getType();
  int64_t m = a.getDimSize(getTransposeA() ? 1 : 0), k = a.getDimSize(getTransposeA() ? 0 : 1);
  int64_t kb = b.getDimSize(getTransposeB() ? 1 : 0), n = b.getDimSize(getTransposeB() ? 0 : 1);
  if (k != kb || d.getDimSize(0) != m || d.getDimSize(1) != n)
    return emitOpError("multiplies [")
           << m << ", " << k << "] by [" << kb << ", " << n << "] into " << d;
  if (getAcc() && getAcc().getType() != d)
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  if (getBias() && cast<RankedTensorType>(getBias().getType()).getDimSize(0) != n)
    return emitOpError("has a bias of type ") << getBias().getType();
  return success();
}

// In what values of `type` are summed.
static Type sumTypeOf(Type type) {
  return type.isF64() ? type : Float32Type::get(type.getContext());
}

// q [tokens, heads * head_dim], k and v [tokens, kv_heads * head_dim], lse [tokens, heads].
template <typename AttentionLike>
static LogicalResult verifyAttention(AttentionLike op, Value lse) {
  auto q = cast<RankedTensorType>(op.getQ().getType());
  auto k = cast<RankedTensorType>(op.getK().getType());
  int64_t headDim = op.getHeadDim(), seq = op.getSeq(), window = op.getWindow();
  if (headDim <= 0 || seq <= 0 || window < 0)
    return op.emitOpError("has head_dim ")
           << headDim << ", seq " << seq << " and window " << window;
  if (q.getRank() != 2 || k.getRank() != 2 || q.getDimSize(0) % seq != 0)
    return op.emitOpError("does not have whole sequences of ") << seq << " tokens in " << q;
  if (q.getDimSize(1) % headDim != 0 || k.getDimSize(1) % headDim != 0 || k.getDimSize(1) == 0 ||
      q.getDimSize(1) % k.getDimSize(1) != 0)
    return op.emitOpError("does not have heads of ") << headDim << " in " << q << " over " << k;
  if (k.getDimSize(0) != q.getDimSize(0) || k.getElementType() != q.getElementType() ||
      op.getV().getType() != k)
    return op.emitOpError("has keys ") << k << " and values " << op.getV().getType() << " for " << q;
  auto sums = RankedTensorType::get({q.getDimSize(0), q.getDimSize(1) / headDim},
                                    sumTypeOf(q.getElementType()));
  if (lse.getType() != sums)
    return op.emitOpError("has log-sum-exps of type ") << lse.getType() << ", not " << sums;
  return success();
}

LogicalResult AttentionOp::verify() {
  if (getResult().getType() != getQ().getType())
    return emitOpError("has a result of type ") << getResult().getType() << " for "
                                                << getQ().getType();
  return verifyAttention(*this, getLse());
}

LogicalResult AttentionGradOp::verify() {
  for (Value like : {getDout(), getOut(), getDq()})
    if (like.getType() != getQ().getType())
      return emitOpError("has an output or a gradient of type ")
             << like.getType() << " for " << getQ().getType();
  for (Value like : {getDk(), getDv()})
    if (like.getType() != getK().getType())
      return emitOpError("has a gradient of type ") << like.getType() << " for "
                                                    << getK().getType();
  return verifyAttention(*this, getLse());
}

LogicalResult ScatterAddOp::verify() {
  auto ids = cast<RankedTensorType>(getIds().getType());
  auto x = cast<RankedTensorType>(getX().getType());
  auto d = cast<RankedTensorType>(getResult().getType());
  if (x.getRank() != 2 || d.getRank() != 2 || x.getDimSize(0) != ids.getDimSize(0) ||
      x.getDimSize(1) != d.getDimSize(1))
    return emitOpError("adds rows of ") << x << " by " << ids << " into " << d;
  if (!isa<FloatType>(x.getElementType()) || d.getElementType() != sumTypeOf(x.getElementType()))
    return emitOpError("sums ") << x.getElementType() << " in " << d.getElementType();
  if (getAcc() && getAcc().getType() != d)
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return success();
}

// Where indices of the inserted tensor are in the whole.
static AffineMap placeOf(tensor::InsertSliceOp insert) {
  MLIRContext *context = insert.getContext();
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  SmallVector<AffineExpr> exprs;
  unsigned dim = 0;
  for (auto [i, offset] : llvm::enumerate(insert.getStaticOffsets())) {
    AffineExpr expr = getAffineConstantExpr(offset, context);
    if (!dropped.test(unsigned(i)))
      expr = getAffineDimExpr(dim++, context) + expr;
    exprs.push_back(expr);
  }
  return AffineMap::get(dim, 0, exprs, context);
}

SmallVector<ResultPart> lmc::kern::partsOfResult(Value value) {
  SmallVector<tensor::InsertSliceOp> inserts; // last to first
  while (auto insert = value.getDefiningOp<tensor::InsertSliceOp>()) {
    inserts.push_back(insert);
    value = insert.getDest();
  }
  if (inserts.empty()) {
    auto type = cast<RankedTensorType>(value.getType());
    return {{value,
             AffineMap::getMultiDimIdentityMap(unsigned(type.getRank()), type.getContext())}};
  }
  SmallVector<ResultPart> parts;
  if (!value.getDefiningOp<tensor::EmptyOp>())
    return parts;
  ArrayRef<int64_t> whole = cast<RankedTensorType>(value.getType()).getShape();
  ArrayRef<int64_t> sizes = inserts.front().getStaticSizes();
  std::optional<size_t> along;
  for (size_t i = 0; i < whole.size(); ++i)
    if (sizes[i] != whole[i]) {
      if (along)
        return {};
      along = i;
    }
  int64_t next = 0; // of the dimension that the parts follow each other along
  for (tensor::InsertSliceOp insert : llvm::reverse(inserts)) {
    if (insert.getStaticSizes() != sizes || insert.getSourceType() != inserts[0].getSourceType() ||
        !llvm::all_of(insert.getStaticStrides(), [](int64_t stride) { return stride == 1; }))
      return {};
    for (auto [i, offset] : llvm::enumerate(insert.getStaticOffsets()))
      if (offset != (along == i ? next : 0))
        return {};
    next += along ? sizes[*along] : 1;
    parts.push_back({insert.getSource(), placeOf(insert)});
  }
  if (next != (along ? whole[*along] : 1))
    return {};
  return parts;
}
