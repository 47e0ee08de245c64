#include "dialects/plan/Plan.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"

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

// Returns the role as a word of a comment.
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

// Prints a line `name %slice : tensor type // role place, bytes`.
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
  out << ", " << tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8 << " bytes";
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

// Parses `%slice : tensor type`, the part of a line that follows the name.
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

// A launch has lines `in` for the inputs of its kernel and, after them, lines `out` for its results.
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

CommandOperands LaunchOp::getCommandOperands() {
  CommandOperands operands;
  for (Value arg : getArgs()) {
    const bool isInput = operands.size() < getInputs();
    operands.push_back({isInput ? "an input" : "a result", arg,
                        isInput ? CommandRole::Read : CommandRole::Write, true});
  }
  return operands;
}
