// The op interfaces of reverse-mode differentiation.

#ifndef LMC_DIALECTS_INTERFACES_DIFFERENTIABLE
#define LMC_DIALECTS_INTERFACES_DIFFERENTIABLE

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::lmc";
  let description = [{
    An op that can build its own vector-Jacobian product (VJP). Given the cotangents
    of its results, it emits ops that compute the cotangents of its operands. The
    forward pass must keep the values that the VJP reads (operands, results), unless a
    later pass decides to recompute them.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the VJP at the builder's insertion point.

      `cotangents` has one value per result, null where nothing depends on that
      result; at least one is not null. Returns one value per operand, null for operands
      that are not differentiated (integers).
      A gradient has its operand's shape and dtype. Only the gradient of a weight, a sum
      over tokens, has the accumulation dtype (f32, or f64 when computing in f64).
    }], "::lmc::Gradients", "buildVjp",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$cotangents)>,
    InterfaceMethod<[{
      The op's results where its VJP computes them too, given the `gradients` that
      `buildVjp` made; empty where it does not. They take the place of the op, which is
      then not needed.
    }], "::llvm::SmallVector<::mlir::Value>", "getResultsFromVjp",
      (ins "::mlir::ValueRange":$gradients), "", [{ return {}; }]>,
    InterfaceMethod<[{
      False for a result that only changes in steps, such as a count: it has no cotangent.
    }], "bool", "hasGradient", (ins "unsigned":$result), "", [{ return true; }]>
  ];
}

def AccumulatingOpInterface : OpInterface<"AccumulatingOpInterface"> {
  let cppNamespace = "::lmc";
  let description = [{
    An op that can add one of its results to an accumulator instead of returning
    it alone: `acc + f(x)`. Gradient accumulation uses it to add into the main
    gradients in place.
  }];
  let methods = [
    InterfaceMethod<"The result that an accumulator is added to.",
      "::mlir::Value", "getAccumulated", (ins), "", [{ return $_op->getResult(0); }]>,
    InterfaceMethod<"The accumulator, the operand `acc`; null when there is none.",
      "::mlir::Value", "getAccumulator", (ins), "", [{ return $_op.getAcc(); }]>,
    InterfaceMethod<"Sets the accumulator; there must be none yet.",
      "void", "setAccumulator", (ins "::mlir::Value":$accumulator), "",
      [{ $_op.getAccMutable().assign(accumulator); }]>
  ];
}

#endif
