// The name in an op's location. It says to which part of the model the op belongs.
#pragma once

#include "mlir/IR/Location.h"

#include <string>

namespace lmc {

// Returns the name of a location, such as "layers.0/mlp"; "" if it has none.
inline std::string nameOf(mlir::Location loc) {
  auto name = mlir::dyn_cast<mlir::NameLoc>(loc);
  return name ? name.getName().str() : "";
}

} // namespace lmc
