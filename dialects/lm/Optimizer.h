// The scalars, states and uses of an optimizer (Optimizer.td), and the variables of a parameter.
#pragma once

#include "dialects/lm/LmEnums.h.inc"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <string>

namespace lmc::lm {

class VariableOp;

// The attribute that lists the matrices that an optimizer step updates as a whole.
inline constexpr llvm::StringLiteral kMatrices = "matrices";

// The properties of a parameter that decide whether an optimizer supports it.
struct SteppedParameter {
  mlir::RankedTensorType type;
  llvm::SmallVector<int64_t> partRows; // rows of each named part, or of the whole
  bool isHidden = false;               // true for a matrix of a layer
  bool keepsF32Moments = false;        // true if its group asks for f32 moments
};
SteppedParameter steppedParameter(VariableOp parameter);

// Returns the matrices of `parameter` that have a name outside of the graph. Their offsets are
// those in the whole parameter, even if ranks divide it.
llvm::SmallVector<mlir::Attribute> matricesOf(VariableOp parameter);

// State that an optimizer keeps for each parameter.
struct OptimizerState {
  VariableKind kind;
  mlir::RankedTensorType type;
  InitKind init = InitKind::Zeros;
};

// A scalar variable that an optimizer reads. The host writes `setting` or `stepValue` to it before
// each step.
struct OptimizerScalar {
  llvm::StringLiteral name;            // name of the variable: "run.eps"
  llvm::StringLiteral setting = "";    // a key of the configuration: "optimizer.eps"
  std::optional<StepValue> stepValue = {};
  bool decays = false; // true if only parameters with weight decay read it
};

// A variable of an optimizer step, which reads `operand` from it and writes `result` to it. Either
// may be null.
struct OptimizerUse {
  VariableKind kind;
  mlir::Value operand, result;
};

// Emits an error and fails unless `op` has the operands and results that Optimizer.td demands.
mlir::LogicalResult verifyOptimizer(mlir::Operation *op);

// Returns the name of the variable of `kind` of a parameter: "w", "w.grad", "w.moment1".
std::string stateName(llvm::StringRef parameter, VariableKind kind);

// The variables of a module, found by the parameter that they belong to.
class ParameterState {
public:
  explicit ParameterState(mlir::ModuleOp module);

  // Returns the variable of `kind` that belongs to the parameter of this name (the kind Parameter:
  // the parameter itself), or null.
  VariableOp find(llvm::StringRef parameter, VariableKind kind) const;
  void insert(VariableOp variable);

private:
  llvm::DenseMap<std::pair<mlir::StringAttr, VariableKind>, mlir::Operation *> variables;
  mlir::MLIRContext *context;
};

} // namespace lmc::lm

#include "dialects/lm/Optimizer.h.inc"
