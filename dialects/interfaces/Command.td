// An op interface of the ops that become one command of a plan, and of these commands.

#ifndef LMC_DIALECTS_INTERFACES_COMMAND
#define LMC_DIALECTS_INTERFACES_COMMAND

include "mlir/IR/OpBase.td"

def CommandOpInterface : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::lmc";
  let description = [{
    An op that becomes one command of a plan (`kern.gemm`: its values are tensors), or is one
    (`plan.gemm`: its values are slices).
  }];
  let methods = [
    InterfaceMethod<[{
      Returns what the command reads, adds to, writes and works in. Optional operands that
      are absent are left out. The operands that are read have the same names and order in
      an op on tensors and in its command. In an op on tensors the operand with the role
      `Accumulate` is what is added to: the first result takes over its bytes. Scratch
      memory is listed for commands only, as it depends on the target.
    }], "::lmc::CommandOperands", "getCommandOperands">
  ];
  let extraSharedClassDeclaration = [{
    // Returns the name of the command in reports: "gemm".
    ::llvm::StringRef getCommandName() { return $_op->getName().stripDialect(); }
    // Returns null if the command adds to no operand.
    ::mlir::Value getAccumulated() {
      return ::lmc::valueOf($_op.getCommandOperands(), ::lmc::CommandRole::Accumulate);
    }
    // Returns null if the command has no scratch memory.
    ::mlir::Value getScratch() {
      return ::lmc::valueOf($_op.getCommandOperands(), ::lmc::CommandRole::Scratch);
    }
  }];
}

def PlannedOpInterface : OpInterface<"PlannedOpInterface"> {
  let cppNamespace = "::lmc";
  let description = [{
    An op on tensors that creates the command it becomes.
  }];
  let methods = [
    InterfaceMethod<[{
      Creates the command. `sliceOf` gives the slice of a tensor, and null for null;
      `scratch` is the slice that the command may use as scratch memory, null for none.
    }], "void", "createCommand",
      (ins "::mlir::OpBuilder &":$b,
           "::llvm::function_ref<::mlir::Value(::mlir::Value)>":$sliceOf,
           "::mlir::Value":$scratch)>
  ];
}

// Implements getCommandOperands by a list of CommandOperand in C++.
class CommandOperandList<string operands> {
  string definition =
      "::lmc::CommandOperands $cppClass::getCommandOperands() {\n"
      "  using enum ::lmc::CommandRole;\n"
      "  constexpr bool mayBeSpaced = true;\n"
      "  (void)mayBeSpaced;\n"
      "  return {" # operands # "};\n"
      "}\n";
}

// Implements getCommandOperands by the list `operands`, and createCommand for an op whose command
// has the same name and attributes. The command's operands are what the op reads, its results and
// the scratch memory, in this order; the attribute `accumulate` stands for an accumulator.
class PlainCommand<string operands> {
  string definition = CommandOperandList<operands>.definition # [{
    void $cppClass::createCommand(::mlir::OpBuilder &b,
                                  ::llvm::function_ref<::mlir::Value(::mlir::Value)> sliceOf,
                                  ::mlir::Value scratch) {
      ::lmc::createPlainCommand(*this, b, sliceOf, scratch);
    }
  }];
}

#endif
