// Converts variables of the plan dialect to tables of the plan file.
#pragma once

#include "dialects/plan/Plan.h"
#include "plan_generated.h"

#include <memory>
#include <string>

namespace lmc {

// Some rows of a variable, and the name that these rows have in checkpoints.
struct NamedRows {
  std::string name, parameter; // `parameter` is the value for plan::VariableT::parameter
  mlir::RankedTensorType type;
  int64_t first; // first row within the variable
  lm::InitAttr init;
  int64_t pitch = 0; // elements from the start of a row to the next; 0: rows have no padding
};

// Returns the named parts of `variable`, or the whole variable if it has none.
llvm::SmallVector<NamedRows> namedRows(plan_ir::VariableOp variable,
                                       const mlir::SymbolTable &symbols);

// Returns the dtype of an element type. Reports an error at `op` if plans have no such dtype.
mlir::FailureOr<plan::DType> dtypeOf(mlir::Operation *op, mlir::Type element);

// Convert enums of the dialects to those of the plan file: they add a constant to the number.
inline plan::Category categoryOf(plan_ir::Category category) {
  return plan::Category(unsigned(plan::Category::Activations) + unsigned(category));
}
inline plan::StepValue stepValueOf(std::optional<lm::StepValue> value) {
  return value ? plan::StepValue(unsigned(*value) + 1) : plan::StepValue::None;
}

plan::Category categoryOf(lm::VariableKind kind);

// Returns the plan file's table for `init`, without the kernel that writes the values.
std::unique_ptr<plan::InitializerT> initializerOf(lm::InitAttr init);

// Returns a hash (16 hexadecimal digits) of `job` and of the names, shapes and dtypes of all
// parameters and moments. A plan can use a checkpoint only if both have the same hash.
std::string modelFingerprint(mlir::ModuleOp module, llvm::StringRef job);

} // namespace lmc
