// What an optimizer op (Optimizer.td) reads and writes, and the variables that a parameter has.
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

// Names the attribute that lists the matrices that an optimizer op must update as whole matrices.
inline constexpr llvm::StringLiteral kMatrices = "matrices";

// The properties of a parameter by which an optimizer accepts or rejects it.
struct SteppedParameter {
  mlir::RankedTensorType type;
  llvm::SmallVector<int64_t> partRows; // rows of each named part, or of a parameter without parts
  bool isHidden = false;               // true for a matrix of a layer
  bool keepsF32Moments = false;        // true if its parameter group asks for f32 moments
};
SteppedParameter steppedParameter(VariableOp parameter);

// Returns the matrices in `parameter` that have names in checkpoints. Their offsets count from the
// start of the whole parameter, even if ranks divide it.
llvm::SmallVector<mlir::Attribute> matricesOf(VariableOp parameter);

// A kind of state that an optimizer keeps for each parameter.
struct OptimizerState {
  VariableKind kind;
  mlir::RankedTensorType type;
  InitKind init = InitKind::Zeros;
};

// A scalar variable that an optimizer reads. Before each step, the host writes to it the value of
// `setting` or of `stepValue`.
struct OptimizerScalar {
  llvm::StringLiteral name;            // name of the variable: "run.eps"
  llvm::StringLiteral setting = "";    // a key of the configuration: "optimizer.eps"
  std::optional<StepValue> stepValue = {};
  bool decays = false; // true if only parameters with weight decay read it
};

// A variable that an optimizer op uses. `operand` is the value that the op reads from it, `result`
// the one that the op writes to it. Either value may be null.
struct OptimizerUse {
  VariableKind kind;
  mlir::Value operand, result;
};

// Emits an error and fails unless `op` has the operands and results that Optimizer.td demands.
mlir::LogicalResult verifyOptimizer(mlir::Operation *op);

// Returns the name of the parameter's variable of kind `kind`: "w.grad" for "w".
std::string stateName(llvm::StringRef parameter, VariableKind kind);

// The variables of a module, found by the parameter that they belong to.
class ParameterState {
public:
  explicit ParameterState(mlir::ModuleOp module);

  // Returns the variable of kind `kind` that belongs to the parameter with this name, or null. For
  // the kind Parameter, returns the parameter itself.
  VariableOp find(llvm::StringRef parameter, VariableKind kind) const;
  void insert(VariableOp variable);

private:
  llvm::DenseMap<std::pair<mlir::StringAttr, VariableKind>, mlir::Operation *> variables;
  mlir::MLIRContext *context;
};

} // namespace lmc::lm

#include "dialects/lm/Optimizer.h.inc"
