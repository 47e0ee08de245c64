// The kern dialect; its reference is docs/dialects/kern.md, generated from KernOps.td.
#pragma once

#include "dialects/interfaces/Command.h"
#include "dialects/interfaces/Generated.h"

#include "dialects/kern/KernDialect.h.inc"
#include "dialects/kern/KernEnums.h.inc"

#define GET_OP_CLASSES
#include "dialects/kern/KernOps.h.inc"

namespace lmc::kern {

// A tensor that is a part of a result, and the affine map from its indices to those of the result.
struct ResultPart {
  mlir::Value value;
  mlir::AffineMap place;
};

// Returns the tensors of one shape that tensor.insert_slice inserts into `value`, a value of a
// fusion's region, one after the other along one dimension. If there are none, returns the value
// itself. Returns nothing if the parts leave gaps or overlap.
llvm::SmallVector<ResultPart> partsOfResult(mlir::Value value);

// Returns `name` if no symbol has this name, else the first of name_2, name_3, ... that is free.
std::string unusedName(const mlir::SymbolTable &symbols, llvm::StringRef name);

} // namespace lmc::kern
