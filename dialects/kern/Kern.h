// The kern dialect; its reference is docs/dialects/kern.md, generated from KernOps.td.
#pragma once

#include "dialects/interfaces/Command.h"
#include "dialects/interfaces/Generated.h"
#include "dialects/interfaces/TensorBytes.h"

#include "dialects/kern/KernDialect.h.inc"
#include "dialects/kern/KernEnums.h.inc"

#define GET_OP_CLASSES
#include "dialects/kern/KernOps.h.inc"

namespace lmc::kern {

// A part of a fusion's result. `place` maps indices of `value` to indices of the result.
struct ResultPart {
  mlir::Value value;
  mlir::AffineMap place;
};

// Returns the tensors that tensor.insert_slice ops insert into `value`, or `value` itself if there
// are none. `value` is in a fusion's region. Returns nothing unless the tensors have equal shapes
// and cover `value` as adjacent blocks along one dimension.
llvm::SmallVector<ResultPart> partsOfResult(mlir::Value value);

// Returns `name` if no symbol has this name, else the first of name_2, name_3, ... that is free.
std::string unusedName(const mlir::SymbolTable &symbols, llvm::StringRef name);

} // namespace lmc::kern
