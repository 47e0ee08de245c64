// From kernels to the shared object that a plan carries for the CPU.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::codegen {

struct CpuTarget {
  // "native", or any CPU name of LLVM's: "x86-64", "x86-64-v3", "x86-64-v4", "znver4" ...
  std::string cpu = "native";
  // Bits of a vector: 128, 256 or 512; 0 chooses the widest that the CPU has. Wider
  // ones than that are split into registers.
  unsigned vectorWidth = 0;
  bool keepAssembly = false; // fill CpuImage::assembly
};

struct CpuImage {
  std::string cpu; // resolved: what "native" stands for
  unsigned vectorWidth = 0;
  // CPU features that the image may use, by their names in the flags of
  // /proc/cpuinfo; the runtime refuses a machine that lacks one.
  std::vector<std::string> features;
  // An ELF shared object: one exported function per kernel, under its name, needing
  // nothing but functions of libm and libc.
  std::vector<uint8_t> object;
  std::string assembly;
};

// The CPU that a name stands for: this machine's for "native", else the name itself. An error
// for a name that LLVM does not know.
llvm::Expected<std::string> resolveCpu(const std::string &name);

// Compiles every kern.kernel of `kernels` for `target`; `kernels` stays as it is.
// Errors: an unknown CPU or vector width, a kernel that no code exists for (its
// reason in the message), or a failure of the linker.
llvm::Expected<CpuImage> buildCpuImage(mlir::ModuleOp kernels, const CpuTarget &target);

} // namespace lmc::codegen
