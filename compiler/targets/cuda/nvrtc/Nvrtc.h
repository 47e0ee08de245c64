// Compiles CUDA C++ to a cubin with NVRTC, in this process and without a GPU.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc::codegen {

// The resources that a kernel uses, as ptxas reports them.
struct KernelResources {
  uint32_t registers = 0;   // per thread
  uint32_t sharedBytes = 0; // static shared memory per thread block; dynamic memory is not counted
  uint32_t stackBytes = 0;  // per thread: local memory for spills and indexed arrays
  uint32_t spillBytes = 0;  // per thread: spill stores and spill loads together
};

struct Cubin {
  std::vector<uint8_t> image;
  KernelResources resources;
};

// Reads resources from `log`, the output of `ptxas -v`. `registers` is the maximum over the kernel
// and the functions that it calls; the other numbers are sums. Returns nothing if the log has no
// numbers of the stack or of registers.
std::optional<KernelResources> parsePtxasLog(llvm::StringRef log);

// Returns the line of `log`, if any, in which ptxas warns that it did not compile a kernel as
// written. It serialized warpgroup products (C7510), added a wait for them (C7517), or ignored a
// register limit (C7508). ptxas does not fail then.
std::optional<std::string> findPtxasRefusal(llvm::StringRef log);

// The library NVRTC, which is opened at run time.
class Nvrtc {
public:
  // Returns the library. The first call opens the file $LMC_NVRTC, else the file that the build
  // found, else the system's library. The error says how to install NVRTC.
  static llvm::Expected<const Nvrtc *> get();

  static llvm::Expected<std::unique_ptr<Nvrtc>> open(const std::string &path);

  ~Nvrtc();

  llvm::StringRef version() const { return versionText; } // "13.0"

  // Returns the compiler options for `kernel`, without the option for the architecture.
  static llvm::SmallVector<const char *> options(const CudaKernel &kernel);

  // Compiles `kernel` for `arch` ("sm_90a"); thread-safe. An error names the kernel, the first
  // compile error, and a file with the source and the log.
  llvm::Expected<Cubin> compile(const CudaKernel &kernel, llvm::StringRef arch) const;

private:
  struct Functions;
  Nvrtc();

  void *library = nullptr;
  std::unique_ptr<Functions> api;
  std::string versionText;
};

} // namespace lmc::codegen
