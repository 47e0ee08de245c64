// The interface of optimizers: the state that an optimizer keeps for a parameter, and the scalars
// that it reads.

#ifndef LMC_DIALECTS_LM_OPTIMIZER
#define LMC_DIALECTS_LM_OPTIMIZER

include "mlir/IR/OpBase.td"

def OptimizerOpInterface : OpInterface<"OptimizerOpInterface"> {
  let cppNamespace = "::lmc::lm";
  let description = [{
    One step of an optimizer for one parameter. `optimizer.type` names the op without its
    dialect. Passes build and read such an op by this convention:

    * operands: the parameter, its gradient, the states of `getStates`, the L2 norm of all
      gradients, the scalars of `getScalars`. A scalar with `decays` is left out where weight
      decay does not apply to the parameter.
    * results: the new parameter, the new states, two vectors of `getNumSums` elements whose
      sums are the squared L2 norms of the parameter's change and of the new parameter, and
      the new parameter in the compute dtype where it has a copy in that.

    Where the norm is not finite, a step leaves the parameter and all states as they were.

    An op with the attribute `matrices` steps whole matrices: the attribute lists those in
    the parameter (`matricesOf`). Steps of other ops may become one step of all their
    elements.
  }];
  let methods = [
    StaticInterfaceMethod<"The state that a step keeps of a parameter of type `parameter`.",
      "::llvm::SmallVector<::lmc::lm::OptimizerState>", "getStates",
      (ins "::mlir::RankedTensorType":$parameter)>,
    StaticInterfaceMethod<"The scalars that a step reads.",
      "::llvm::ArrayRef<::lmc::lm::OptimizerScalar>", "getScalars">,
    StaticInterfaceMethod<[{
      Elements of each vector of sums. Kernels make a row of a matrix, or all of a vector, as
      one work item.
    }], "int64_t", "getNumSums", (ins "::mlir::RankedTensorType":$parameter), "",
      [{ return parameter.getRank() == 2 ? parameter.getDimSize(0) : 1; }]>,
    StaticInterfaceMethod<"Whether the op can make the steps of `parameter`.", "bool", "takes",
      (ins "const ::lmc::lm::SteppedParameter &":$parameter), "", [{ return true; }]>,
    StaticInterfaceMethod<[{
      The optimizer, without its dialect, of parameters that the op does not take; empty where
      it takes all.
    }], "::llvm::StringRef", "getFallback", (ins), "", [{ return ""; }]>,
    StaticInterfaceMethod<[{
      What the op needs of a parameter, for an error: "steps matrices, which have ...".
    }], "::llvm::StringRef", "getRequirement", (ins), "", [{ return ""; }]>,
    StaticInterfaceMethod<"What people call a step: the first part of its location.",
      "::llvm::StringRef", "getStepName", (ins), "",
      [{ return ConcreteOp::getOperationName().split('.').second; }]>
  ];
  let extraClassDeclaration = [{
    // All variables that the step reads or writes; the parameter comes first.
    ::llvm::SmallVector<::lmc::lm::OptimizerUse> getUses();
    // Returns the operands that are the gradient norm and the scalars.
    ::mlir::OperandRange getScalarOperands();
    ::mlir::Value getUpdateSums();
    ::mlir::Value getParameterSums();

    // Returns the name of the op for `optimizer.type` = `type`, or null if there is none.
    static const Concept *lookup(::mlir::MLIRContext *context, ::llvm::StringRef type);
  }];
  let verify = [{ return ::lmc::lm::verifyOptimizer($_op); }];
}

#endif
