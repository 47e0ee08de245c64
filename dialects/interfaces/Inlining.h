// Inlining of functions whose ops only use values and named state.
#pragma once

#include "mlir/Transforms/InliningUtils.h"

namespace lmc {

// Allows every op of a dialect to be inlined anywhere.
struct InlineAnywhere : mlir::DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(mlir::Operation *, mlir::Region *, bool, mlir::IRMapping &) const final {
    return true;
  }
  bool isLegalToInline(mlir::Region *, mlir::Region *, bool, mlir::IRMapping &) const final {
    return true;
  }
};

} // namespace lmc
