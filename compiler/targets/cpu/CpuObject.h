// Compiles kernels to the shared object that a plan for a CPU contains.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::codegen {

struct CpuTarget {
  // "native", or any CPU name of LLVM: "x86-64", "x86-64-v3", "x86-64-v4", "znver4" ...
  std::string cpu = "native";
  // Width of a vector in bits: 128, 256 or 512; 0 means the widest that the CPU has.
  unsigned vectorWidth = 0;
  bool keepAssembly = false; // true: sets CpuImage::assembly, and does not use the cache
  std::string cache = "";    // folder that keeps compiled kernels (KernelCache.h); "": none
};

struct CpuImage {
  std::string cpu; // name of the CPU, never "native"
  unsigned vectorWidth = 0;
  // The CPU features that the image may use, by their names in the flags of /proc/cpuinfo. The
  // runtime refuses a machine that lacks one of them.
  std::vector<std::string> features;
  // An ELF shared object. It exports one function per kernel, named after the kernel, and imports
  // only functions of libm and libc.
  std::vector<uint8_t> object;
  std::string assembly;
};

// Returns the LLVM name of a CPU: this machine's for "native", else `name`. Fails if LLVM does not
// know the name.
llvm::Expected<std::string> resolveCpu(const std::string &name);

// Compiles every kern.kernel of `kernels` for `target`. Errors: an unknown CPU or vector width, a
// kernel that cannot be compiled, a failure of the linker.
llvm::Expected<CpuImage> buildCpuImage(mlir::ModuleOp kernels, const CpuTarget &target);

} // namespace lmc::codegen
