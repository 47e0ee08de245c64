// The parts of an optimizer (Optimizer.td), and the variables that hold the state of a parameter.
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

// The name of the attribute that lists the matrices that an optimizer step updates as wholes.
inline constexpr llvm::StringLiteral kMatrices = "matrices";

// The properties of a parameter that decide whether an optimizer supports it.
struct SteppedParameter {
  mlir::RankedTensorType type;
  llvm::SmallVector<int64_t> partRows; // rows of each named part; all rows if there is none
  bool isHidden = false;               // a matrix of a layer
  bool keepsF32Moments = false;        // its group asks for f32 moments
};
SteppedParameter steppedParameter(VariableOp parameter);

// Returns the matrices, of those with a name outside of the graph, that `parameter` holds. Their
// offsets are those in the whole parameter, even if ranks divide it.
llvm::SmallVector<mlir::Attribute> matricesOf(VariableOp parameter);

// State that an optimizer keeps for each parameter, in a variable of its own.
struct OptimizerState {
  VariableKind kind;
  mlir::RankedTensorType type;
  InitKind init = InitKind::Zeros;
};

// A scalar variable that an optimizer reads. The host writes it before each step: the value of
// `setting`, or `stepValue`, whichever is given.
struct OptimizerScalar {
  llvm::StringLiteral name;            // of the variable: "run.eps"
  llvm::StringLiteral setting = "";    // a key of the configuration: "optimizer.eps"
  std::optional<StepValue> stepValue = {};
  bool decays = false; // true if only parameters with weight decay read it
};

// A variable of an optimizer step. The step reads it as `operand` (null if it does not) and writes
// it as `result` (null if it does not).
struct OptimizerUse {
  VariableKind kind;
  mlir::Value operand, result;
};

// Fails with an error if the numbers of operands and results differ from those of the convention.
mlir::LogicalResult verifyOptimizer(mlir::Operation *op);

// Returns the name of the variable of `kind` that belongs to `parameter`: "w", "w.grad",
// "w.moment1". `kind` must be one that belongs to a parameter.
std::string stateName(llvm::StringRef parameter, VariableKind kind);

// The variables of a module, by the parameter that they belong to.
class ParameterState {
public:
  explicit ParameterState(mlir::ModuleOp module);

  // Returns the variable of `kind` that belongs to the parameter of this name (the parameter itself
  // for the kind Parameter), or null.
  VariableOp find(llvm::StringRef parameter, VariableKind kind) const;
  void insert(VariableOp variable);

private:
  llvm::DenseMap<std::pair<mlir::StringAttr, VariableKind>, mlir::Operation *> variables;
  mlir::MLIRContext *context;
};

} // namespace lmc::lm

#include "dialects/lm/Optimizer.h.inc"
