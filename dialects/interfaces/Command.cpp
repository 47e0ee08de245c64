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
