// What a plan file says of the variables of the plan dialect.
#pragma once

#include "dialects/plan/Plan.h"
#include "plan_generated.h"

#include <memory>
#include <string>

namespace lmc {

// Rows of a variable under the name that they have in checkpoints.
struct NamedRows {
  std::string name, parameter; // `parameter` as in plan::VariableT
  mlir::RankedTensorType type;
  int64_t first; // row of the variable
  lm::InitAttr init;
};

// The parts of `variable`, or all of it where it has none. `symbols` are those of its module.
llvm::SmallVector<NamedRows> namedRows(plan_ir::VariableOp variable,
                                       const mlir::SymbolTable &symbols);

// Fails with an error at `op` where plans have no such element type.
mlir::FailureOr<plan::DType> dtypeOf(mlir::Operation *op, mlir::Type element);

plan::VariableKind kindOf(lm::VariableKind kind);
plan::Category categoryOf(lm::VariableKind kind);
plan::Category categoryOf(plan_ir::Category category);

plan::StepValue stepValueOf(std::optional<lm::StepValue> value);

// Without a kernel.
std::unique_ptr<plan::InitializerT> initializerOf(lm::InitAttr init);

// What a checkpoint must agree on to be loaded: names, shapes and dtypes of all parameters and
// moments, and `job`, the rest. 16 hexadecimal digits.
std::string modelFingerprint(mlir::ModuleOp module, llvm::StringRef job);

} // namespace lmc
