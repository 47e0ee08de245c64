// The lm dialect; its reference is docs/dialects/lm.md, generated from LmOps.td.
#pragma once

#include "dialects/interfaces/Differentiable.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/lm/LmDialect.h.inc"
#include "dialects/lm/LmEnums.h.inc"

#define GET_OP_CLASSES
#include "dialects/lm/LmOps.h.inc"
