#include "dialects/kern/Kern.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::kern;

#include "dialects/kern/KernDialect.cpp.inc"
#include "dialects/kern/KernEnums.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/kern/KernOps.cpp.inc"

void KernDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/kern/KernOps.cpp.inc"
      >();
}

// Parses: kern.fusion HERO (%arg = %input : type, ...) -> types { body } attr-dict
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
  SmallVector<StringRef> elided{"hero"};
  if (getLayerIndex() < 0)
    elided.push_back("layer");
  printer.printOptionalAttrDict((*this)->getAttrs(), elided);
}

static LogicalResult verifyRegion(Operation *parent, Block &body) {
  for (Operation &op : body.without_terminator())
    if (!isa<linalg::GenericOp, linalg::FillOp, tensor::EmptyOp, tensor::InsertSliceOp,
             arith::ConstantOp>(op))
      return op.emitOpError("is not allowed in a ")
             << parent->getName().getStringRef()
             << "; only linalg.generic, linalg.fill, tensor.empty, tensor.insert_slice and "
                "arith.constant are";
  return success();
}

LogicalResult FusionOp::verify() {
  Block &body = getBody().front();
  if (body.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("has block arguments that differ from its inputs");
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield || yield.getValues().getTypes() != getResultTypes())
    return emitOpError("must end in a kern.yield of its result types");
  return verifyRegion(*this, body);
}

LogicalResult KernelOp::verify() {
  Block &body = getBody().front();
  auto yield = body.empty() ? YieldOp() : dyn_cast<YieldOp>(body.back());
  if (!yield)
    return emitOpError("must end in a kern.yield");
  for (Type type : body.getArgumentTypes())
    if (!isa<RankedTensorType>(type))
      return emitOpError("has an argument of type ") << type << ", which is no tensor";
  if (getArgRows().has_value() != getArgPitches().has_value())
    return emitOpError("has arg_rows without arg_pitches, or the reverse");
  if (getArgRows()) {
    size_t arguments = body.getNumArguments() + yield.getNumOperands();
    if (getArgRows()->size() != arguments || getArgPitches()->size() != arguments)
      return emitOpError("has ") << getArgRows()->size() << " arg_rows and "
                                 << getArgPitches()->size() << " arg_pitches for " << arguments
                                 << " inputs and results";
    if (llvm::any_of(*getArgRows(), [](int64_t rows) { return rows < 1; }) ||
        llvm::any_of(*getArgPitches(), [](int64_t pitch) { return pitch < 0; }))
      return emitOpError("has arg_rows below 1 or arg_pitches below 0");
  }
  return verifyRegion(*this, body);
}

// A kernel accepts operands and results in any layout. codegen::canEmit has checked the layouts.
CommandOperands LaunchOp::getCommandOperands() {
  CommandOperands operands;
  for (Value input : getInputs())
    operands.push_back({"an input", input, CommandRole::Read, true});
  for (Value result : getResults())
    operands.push_back({"a result", result, CommandRole::Write, true});
  return operands;
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

// Returns the affine map from indices of the source of `insert` to indices of its result.
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

std::string lmc::kern::unusedName(const SymbolTable &symbols, StringRef name) {
  std::string unused = name.str();
  for (int number = 2; symbols.lookup(unused); ++number)
    unused = (name + "_" + Twine(number)).str();
  return unused;
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
  int64_t next = 0; // offset of the next part in the dimension along which parts follow each other
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
