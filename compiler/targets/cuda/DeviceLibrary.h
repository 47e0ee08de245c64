// The device library (compiler/targets/cuda/device/*.cuh) as text, embedded when lmc is built.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace lmc::codegen {

struct DeviceHeader {
  std::string name; // as kernels include it: "lmc/vector_io.cuh"
  llvm::StringRef text;
};

// All headers, sorted by name.
llvm::ArrayRef<DeviceHeader> deviceHeaders();

// Returns `source` with every device header that it includes, directly or not, in place of the
// first include of that header. The result compiles without an include path.
std::string inlineDeviceHeaders(llvm::StringRef source);

} // namespace lmc::codegen
