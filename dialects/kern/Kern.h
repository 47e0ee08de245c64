// The kern dialect; its reference is docs/dialects/kern.md, generated from KernOps.td.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/interfaces/Command.h"
#include "dialects/kern/KernDialect.h.inc"
#include "dialects/kern/KernEnums.h.inc"

#define GET_OP_CLASSES
#include "dialects/kern/KernOps.h.inc"

namespace lmc::kern {

// One of the tensors that make up a result, and where it lies: a map from its indices to
// those of the whole.
struct ResultPart {
  mlir::Value value;
  mlir::AffineMap place;
};

// What a value of a fusion's region consists of: tensors of one shape that
// tensor.insert_slice lays one after the other along one dimension, first to last and all of
// it; or the value itself. Nothing when insertions leave holes or overlap.
llvm::SmallVector<ResultPart> partsOfResult(mlir::Value value);

} // namespace lmc::kern
