// Commands seen alike: what each one reads and writes, as an op interface of the ops on tensors
// that become commands, and of the commands.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace lmc {

enum class CommandRole : uint8_t {
  Read,
  Write,      // overwritten; nothing of it is read
  Accumulate, // read, and overwritten with a sum that it is part of
  Scratch,    // its content is undefined before and after the command
};

struct CommandOperand {
  llvm::StringRef name; // "q"
  mlir::Value value;
  CommandRole role = CommandRole::Read;
  bool mayBeSpaced = false; // its rows may lie apart (a pitch)
};

class CommandOperands : public llvm::SmallVector<CommandOperand, 12> {
public:
  CommandOperands() = default;
  // Leaves out operands whose value is null.
  CommandOperands(std::initializer_list<CommandOperand> all);
};

// The value of the operand with that role; null where there is none.
mlir::Value valueOf(const CommandOperands &operands, CommandRole role);

} // namespace lmc

#include "dialects/interfaces/Command.h.inc"
