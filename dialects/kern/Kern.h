// The kern dialect; its reference is docs/dialects/kern.md, generated from KernOps.td.
#pragma once

#include "dialects/interfaces/Command.h"
#include "dialects/interfaces/Generated.h"

#include "dialects/kern/KernDialect.h.inc"
#include "dialects/kern/KernEnums.h.inc"

#define GET_OP_CLASSES
#include "dialects/kern/KernOps.h.inc"

namespace lmc::kern {

// A tensor that is a part of a result. `place` maps the tensor's indices to those of the result.
struct ResultPart {
  mlir::Value value;
  mlir::AffineMap place;
};

// Returns the tensors that tensor.insert_slice ops insert into `value`, which is in a fusion's
// region. If there are none, returns `value` itself. Returns nothing unless the tensors have one
// shape and fill `value` along one dimension, without gaps or overlaps.
llvm::SmallVector<ResultPart> partsOfResult(mlir::Value value);

// Returns `name` if no symbol has this name, else the first of name_2, name_3, ... that is free.
std::string unusedName(const mlir::SymbolTable &symbols, llvm::StringRef name);

} // namespace lmc::kern
