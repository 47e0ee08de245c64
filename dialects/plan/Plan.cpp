#include "dialects/plan/Plan.h"

#include "dialects/interfaces/TensorBytes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace lmc;
using namespace lmc::plan_ir;

#include "dialects/plan/PlanDialect.cpp.inc"
#include "dialects/plan/PlanEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.cpp.inc"

//===-- The form of commands ----------------------------------------------------------------===//

static StringRef wordOf(CommandRole role) {
  switch (role) {
  case CommandRole::Read:
    return "reads";
  case CommandRole::Write:
    return "writes";
  case CommandRole::Accumulate:
    return "adds to";
  case CommandRole::Scratch:
    return "scratch";
  }
  llvm_unreachable("a role without a word");
}

// Prints a line: name, slice, tensor type, then, as a comment, the role, place and number of bytes.
static void printLine(OpAsmPrinter &printer, StringRef name, CommandRole role, Value slice) {
  auto tensor = cast<SliceType>(slice.getType()).getContent();
  std::string line;
  llvm::raw_string_ostream out(line);
  out << "  " << llvm::left_justify(name, 9) << " ";
  printer.printOperand(slice, out);
  out << " : " << tensor;
  out.indent(unsigned(std::max<int64_t>(2, 48 - int64_t(line.size()))))
      << "// " << llvm::left_justify(wordOf(role), 7) << " @";
  int64_t rows = 1, pitch = 0;
  if (auto placed = slice.getDefiningOp<SliceOp>()) {
    out << placed.getArena() << "[" << placed.getOffset() << "]";
    rows = int64_t(placed.getRows());
    pitch = int64_t(placed.getPitch());
  } else if (auto variable = slice.getDefiningOp<VariableRefOp>()) {
    out << variable.getVariable() << "[" << variable.getOffset() << "]";
    rows = int64_t(variable.getRows());
    pitch = int64_t(variable.getPitch());
  }
  out << ", " << byteSize(tensor) << " bytes";
  if (pitch)
    out << " in " << rows << " rows, " << pitch << " bytes apart";
  printer.printNewline();
  printer << line;
}

static void printOptionalOperand(OpAsmPrinter &printer, Operation *op, StringRef name, Value slice,
                                 Type) {
  if (!slice)
    return;
  for (const CommandOperand &operand : cast<CommandOpInterface>(op).getCommandOperands())
    if (operand.name == name && operand.value == slice)
      return printLine(printer, name, operand.role, slice);
}

static void printOperand(OpAsmPrinter &printer, Operation *op, StringRef name, Value slice,
                         Type type) {
  printOptionalOperand(printer, op, name, slice, type);
}

// Parses `%slice : tensor type`, the part of a line after the name.
static ParseResult parseSlice(OpAsmParser &parser, OpAsmParser::UnresolvedOperand &slice,
                              Type &type) {
  RankedTensorType tensor;
  if (parser.parseOperand(slice) || parser.parseColon() || parser.parseType(tensor))
    return failure();
  type = SliceType::get(parser.getContext(), tensor);
  return success();
}

static ParseResult parseOperand(OpAsmParser &parser, StringRef name,
                                OpAsmParser::UnresolvedOperand &slice, Type &type) {
  return failure(parser.parseKeyword(name) || parseSlice(parser, slice, type));
}

static ParseResult parseOptionalOperand(OpAsmParser &parser, StringRef name,
                                        std::optional<OpAsmParser::UnresolvedOperand> &slice,
                                        Type &type) {
  if (failed(parser.parseOptionalKeyword(name)))
    return success();
  return parseSlice(parser, slice.emplace(), type);
}

// A launch has one line `in` for each kernel input, then one line `out` for each kernel result.
static void printArguments(OpAsmPrinter &printer, Operation *, OperandRange slices, TypeRange,
                           IntegerAttr inputs) {
  for (auto [number, slice] : llvm::enumerate(slices)) {
    bool isInput = int64_t(number) < inputs.getInt();
    printLine(printer, isInput ? "in" : "out", isInput ? CommandRole::Read : CommandRole::Write,
              slice);
  }
}

static ParseResult parseArguments(OpAsmParser &parser,
                                  SmallVectorImpl<OpAsmParser::UnresolvedOperand> &slices,
                                  SmallVectorImpl<Type> &types, IntegerAttr &inputs) {
  auto parseLines = [&](StringRef name) -> ParseResult {
    while (succeeded(parser.parseOptionalKeyword(name)))
      if (parseSlice(parser, slices.emplace_back(), types.emplace_back()))
        return failure();
    return success();
  };
  if (parseLines("in"))
    return failure();
  inputs = parser.getBuilder().getI64IntegerAttr(int64_t(slices.size()));
  return parseLines("out");
}

#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/plan/PlanTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

bool lmc::plan_ir::isCollective(Operation *op) {
  return isa<AllGatherOp, ReduceScatterOp, AllReduceOp>(op);
}

bool lmc::plan_ir::isAsync(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<AllGatherOp, ReduceScatterOp, AllReduceOp>([](auto each) { return each.getAsync(); })
      .Default(false);
}

unsigned lmc::plan_ir::axisOf(Operation *collective) {
  return llvm::TypeSwitch<Operation *, unsigned>(collective)
      .Case<AllGatherOp, ReduceScatterOp, AllReduceOp>(
          [](auto each) { return unsigned(each.getAxis()); });
}

CommandOperands LaunchOp::getCommandOperands() {
  CommandOperands operands;
  for (Value arg : getArgs()) {
    const bool isInput = operands.size() < getInputs();
    operands.push_back({isInput ? "an input" : "a result", arg,
                        isInput ? CommandRole::Read : CommandRole::Write, true});
  }
  return operands;
}

//===-- Verifiers ---------------------------------------------------------------------------===//
// The checks of a whole module are in compiler/phases/Levels.cpp.

static RankedTensorType contentOf(Value slice) {
  return cast<SliceType>(slice.getType()).getContent();
}

LogicalResult ArenaOp::verify() {
  if (int64_t(getBytes()) < 0 || getLowerBound() > getBytes())
    return emitOpError("has ") << int64_t(getBytes()) << " bytes where no packing needs less than "
                               << int64_t(getLowerBound());
  if (!llvm::isPowerOf2_64(getAlignment()))
    return emitOpError("has an alignment of ")
           << int64_t(getAlignment()) << ", which is no power of two";
  return success();
}

// A view has `rows` runs of adjacent bytes. Runs start `pitch` bytes apart. Checks that a view with
// pitch 0 has one run. Otherwise, checks that a run is whole rows and that runs do not overlap.
template <typename View> static LogicalResult verifyRuns(View view) {
  auto type = view.getType().getContent();
  int64_t offset = view.getOffset(), rows = view.getRows(), pitch = view.getPitch();
  int64_t bytes = int64_t(byteSize(type)), width = std::max(type.getElementTypeBitWidth() / 8, 1u);
  if (offset < 0 || offset % width)
    return view.emitOpError("begins at byte ") << offset << ", but its elements have " << width;
  int64_t product = 1;
  bool areRows = rows == 1;
  for (int64_t extent : type.getShape())
    areRows |= (product *= extent) == rows;
  bool isSound =
      pitch == 0 ? rows == 1 : areRows && rows > 0 && pitch >= bytes / rows && pitch % width == 0;
  if (!isSound)
    return view.emitOpError("has ") << rows << " rows, " << pitch << " bytes apart, of " << type;
  return success();
}

LogicalResult SliceOp::verify() {
  int64_t first = getFirst(), last = getLast();
  if (first > last)
    return emitOpError("lives from command ") << first << " to " << last;
  return verifyRuns(*this);
}

LogicalResult VariableRefOp::verify() { return verifyRuns(*this); }

LogicalResult LaunchOp::verify() {
  int64_t inputs = getInputs(), items = getItems(), chunk = getChunk();
  if (inputs < 0 || inputs > int64_t(getArgs().size()))
    return emitOpError("has ") << inputs << " inputs of " << getArgs().size() << " arguments";
  if (items < 1 || chunk < 1)
    return emitOpError("has ") << items << " items in chunks of " << chunk;
  return success();
}

LogicalResult GemmOp::verify() {
  RankedTensorType a = contentOf(getA()), b = contentOf(getB()), d = contentOf(getD());
  if (a.getRank() != 2 || b.getRank() != 2 || d.getRank() != 2)
    return emitOpError("needs matrices, has ") << a << ", " << b << " and " << d;
  bool ta = getTransposeA(), tb = getTransposeB();
  const auto batch = int64_t(getBatch());
  for (RankedTensorType stack : {a, b, d})
    if (batch < 1 || stack.getDimSize(0) % batch != 0)
      return emitOpError("has no stack of ") << batch << " matrices in " << stack;
  auto extent = [&](RankedTensorType stack, bool dim) { // of one matrix
    return stack.getDimSize(dim) / (dim ? 1 : batch);
  };
  if (extent(a, !ta) != extent(b, tb) || extent(a, ta) != extent(d, 0) ||
      extent(b, !tb) != extent(d, 1))
    return emitOpError("makes no ") << d << " of " << a << (ta ? " transposed" : "") << " and " << b
                                    << (tb ? " transposed" : "");
  const bool isScaled = isEightBits(a.getElementType());
  if (isScaled != isEightBits(b.getElementType()) || isScaled != bool(getScaleA()) ||
      isScaled != bool(getScaleB()))
    return emitOpError("multiplies ")
           << a << " and " << b << "; factors of 8 bits have scales, and "
           << "no others have";
  if (getBias() && contentOf(getBias()).getNumElements() != d.getDimSize(1))
    return emitOpError("has a bias of ") << contentOf(getBias()) << " for " << d;
  if (getResidual() && (contentOf(getResidual()) != d || getAccumulate() || batch > 1))
    return emitOpError("has a residual of ") << contentOf(getResidual()) << " for "
                                             << (getAccumulate() ? "a sum in " : "") << batch << " of "
                                             << d;
  return success();
}

LogicalResult CopyOp::verify() {
  RankedTensorType x = contentOf(getX()), d = contentOf(getD());
  if (byteSize(x) != byteSize(d))
    return emitOpError("copies ") << byteSize(x) << " bytes to " << byteSize(d);
  return success();
}
