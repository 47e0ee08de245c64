// The pass and the layer that an op of a training step belongs to.

#ifndef LMC_DIALECTS_INTERFACES_STEP
#define LMC_DIALECTS_INTERFACES_STEP

include "mlir/IR/OpBase.td"

// The fields of an op with StepOpInterface. `backward` is set on the ops of the backward pass, and
// on forward ops that are computed again there. `layer` is the index of the transformer layer, from
// 0 on. It is -1 for an op outside of layers, and for an op in the body of a layer that is called.
defvar StepFields = (ins UnitAttr:$backward, DefaultValuedAttr<I64Attr, "-1">:$layer);

def StepOpInterface : OpInterface<"StepOpInterface"> {
  let cppNamespace = "::lmc";
  let description = [{
    An op of a training step. It belongs to the forward or the backward pass and, once the
    calls of layers are inlined, to a layer or to none. An op that is created in place of
    other ops gets their fields by `setStep`.
  }];
  let methods = [
    InterfaceMethod<"Returns true if the op belongs to the backward pass.",
      "bool", "getBackward">,
    InterfaceMethod<"Says whether the op belongs to the backward pass.",
      "void", "setBackward", (ins "bool":$backward)>,
    InterfaceMethod<"Returns the index of the op's layer, from 0 on; -1 for an op of no layer.",
      "int64_t", "getLayerIndex", (ins), "", [{ return int64_t($_op.getLayer()); }]>,
    InterfaceMethod<"Sets the index of the op's layer; -1 for no layer.",
      "void", "setLayerIndex", (ins "int64_t":$layer), "",
      [{ $_op.setLayer(uint64_t(layer)); }]>
  ];
}

#endif
