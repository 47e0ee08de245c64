// An op interface that lists the values that an op reads and writes. The op is a command of a plan,
// or an op on tensors that becomes such a command.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace lmc {

enum class CommandRole : uint8_t {
  Read,
  Write,      // the operand is overwritten, and nothing of it is read
  Accumulate, // the operand is read, and overwritten with a sum that includes it
  Scratch,    // the operand's contents are undefined before and after the command
};

struct CommandOperand {
  llvm::StringRef name; // "q"
  mlir::Value value;
  CommandRole role = CommandRole::Read;
  bool mayBeSpaced = false; // true if its rows may lie apart, with a pitch
};

class CommandOperands : public llvm::SmallVector<CommandOperand, 12> {
public:
  CommandOperands() = default;
  // Leaves out operands whose value is null.
  CommandOperands(std::initializer_list<CommandOperand> all);
};

// Returns the value of the first operand with this role, or null.
mlir::Value valueOf(const CommandOperands &operands, CommandRole role);

} // namespace lmc

#include "dialects/interfaces/Command.h.inc"

namespace lmc {

// Creates the command of an op that is a PlainCommand (Command.td).
void createPlainCommand(CommandOpInterface op, mlir::OpBuilder &b,
                        llvm::function_ref<mlir::Value(mlir::Value)> sliceOf,
                        mlir::Value scratch);

} // namespace lmc
