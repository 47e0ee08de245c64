// What the fusion passes said on the module, as the plan's report "fusion".
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <nlohmann/json.hpp>

namespace lmc {

// The entries of `kern.fusion_report`, whatever fields they have, in lists by their outcome:
// {"formed": [...], "refused": [...], "merged": [...]}. Empty for a module without it.
nlohmann::json fusionNotes(mlir::ModuleOp module);

} // namespace lmc
