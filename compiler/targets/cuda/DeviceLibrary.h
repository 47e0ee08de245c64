// The device library (compiler/targets/cuda/device/*.cuh) as text that is built into lmc.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace lmc::codegen {

struct DeviceHeader {
  std::string name; // the name in #include lines: "lmc/vector_io.cuh"
  llvm::StringRef text;
};

// Returns all headers, sorted by name.
llvm::ArrayRef<DeviceHeader> deviceHeaders();

// Returns `source` with the text of each device header in place of its first include. That holds
// for includes inside headers, too. The result compiles without an include path.
std::string inlineDeviceHeaders(llvm::StringRef source);

} // namespace lmc::codegen
