// Compiles kernels to the shared object that a plan carries for the CPU.
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
  // Bits of a vector: 128, 256 or 512; 0 chooses the widest that the CPU has. Vectors wider than
  // the CPU's are divided among several registers.
  unsigned vectorWidth = 0;
  bool keepAssembly = false; // fill CpuImage::assembly
};

struct CpuImage {
  std::string cpu; // the CPU's name, with "native" resolved
  unsigned vectorWidth = 0;
  // CPU features that the image may use, by their names in the flags of
  // /proc/cpuinfo; the runtime refuses a machine that lacks one.
  std::vector<std::string> features;
  // An ELF shared object. It exports one function per kernel, under the kernel's name, and needs
  // only functions of libm and libc.
  std::vector<uint8_t> object;
  std::string assembly;
};

// Returns the CPU that a name stands for: this machine's for "native", else the name itself. Fails
// for a name that LLVM does not know.
llvm::Expected<std::string> resolveCpu(const std::string &name);

// Compiles every kern.kernel of `kernels` for `target`; `kernels` is not changed. Errors: an
// unknown CPU or vector width, a kernel that cannot be compiled (the message gives the reason), or
// a failure of the linker.
llvm::Expected<CpuImage> buildCpuImage(mlir::ModuleOp kernels, const CpuTarget &target);

} // namespace lmc::codegen
