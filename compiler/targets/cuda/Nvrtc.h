// NVRTC compiles CUDA C++ to a cubin inside this process, also on a machine without a GPU.
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

// The resources of the device that a kernel uses, as reported by ptxas.
struct KernelResources {
  uint32_t registers = 0;   // per thread
  uint32_t sharedBytes = 0; // static, per block, without that requested at launch
  uint32_t stackBytes = 0;  // per thread: local memory, spilled or indexed
  uint32_t spillBytes = 0;  // per thread: stores and loads together
};

struct Cubin {
  std::vector<uint8_t> image;
  KernelResources resources;
};

// Returns the resources in the log of `ptxas -v` for one entry. The resources of functions that the
// entry calls are added, as they are in use at the same time. Returns nothing if the log has no
// such entry.
std::optional<KernelResources> parsePtxasLog(llvm::StringRef log);

// The compiler, a shared library that is opened at run time.
class Nvrtc {
public:
  // Returns the library named by $LMC_NVRTC if that is set, else the one that the build found, else
  // the one that the loader finds. It is opened once per process. An error tells how to install it.
  static llvm::Expected<const Nvrtc *> get();

  // Opens the library at `path`, without a search.
  static llvm::Expected<std::unique_ptr<Nvrtc>> open(const std::string &path);

  ~Nvrtc();

  llvm::StringRef version() const { return versionText; } // "13.0"

  // Returns the options to compile a kernel with, except the architecture.
  static llvm::SmallVector<const char *> options(const CudaKernel &kernel);

  // Compiles for `arch` ("sm_90a"). Several threads may call it at the same time. An error names
  // the kernel, the first compile error, and a file that holds the source and the whole log.
  llvm::Expected<Cubin> compile(const CudaKernel &kernel, llvm::StringRef arch) const;

private:
  struct Functions;
  Nvrtc();

  void *library = nullptr;
  std::unique_ptr<Functions> api;
  std::string versionText;
};

} // namespace lmc::codegen
