#include "dialects/interfaces/Command.h"

#include "dialects/interfaces/Command.cpp.inc"

using namespace mlir;
using namespace lmc;

CommandOperands::CommandOperands(std::initializer_list<CommandOperand> all) {
  for (const CommandOperand &operand : all)
    if (operand.value)
      push_back(operand);
}

Value lmc::valueOf(const CommandOperands &operands, CommandRole role) {
  for (const CommandOperand &operand : operands)
    if (operand.role == role)
      return operand.value;
  return {};
}

void lmc::createPlainCommand(CommandOpInterface op, OpBuilder &b,
                             llvm::function_ref<Value(Value)> sliceOf, Value scratch) {
  SmallVector<Value> slices;
  // sliceOf() numbers slices in the order of calls. Results are the last operands, and the loop
  // goes from the last operand to the first, so results get the lowest numbers.
  for (const CommandOperand &operand : llvm::reverse(op.getCommandOperands()))
    if (operand.role != CommandRole::Accumulate)
      slices.insert(slices.begin(), sliceOf(operand.value));
  if (scratch)
    slices.push_back(scratch);
  OperationState command(op.getLoc(), ("plan." + op.getCommandName()).str(), slices, TypeRange());
  if (auto attributes = dyn_cast_if_present<DictionaryAttr>(op->getPropertiesAsAttribute()))
    command.addAttributes(attributes.getValue());
  if (op.getAccumulated())
    command.addAttribute("accumulate", b.getUnitAttr());
  b.create(command);
}
