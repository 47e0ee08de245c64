// NVRTC: CUDA C++ to cubin inside this process, on a machine that may have no GPU.
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

// What a kernel takes of the device, as ptxas reports it.
struct KernelResources {
  uint32_t registers = 0;   // of a thread
  uint32_t sharedBytes = 0; // static, of a block; what the launch asks for comes on top
  uint32_t stackBytes = 0;  // of a thread: local memory, spilled or indexed
  uint32_t spillBytes = 0;  // of a thread: stores and loads together
};

struct Cubin {
  std::vector<uint8_t> image;
  KernelResources resources;
};

// The resources in the log of `ptxas -v` for one entry; those of functions that it calls are
// added, as they are in use together. None where the log does not tell.
std::optional<KernelResources> parsePtxasLog(llvm::StringRef log);

// The compiler, as a shared library that is opened at run time.
class Nvrtc {
public:
  // $LMC_NVRTC if that is set, else the library that the build found, else the one that the
  // loader finds. Opened once per process. An error says how to get it.
  static llvm::Expected<const Nvrtc *> get();

  // Opens `path` alone.
  static llvm::Expected<std::unique_ptr<Nvrtc>> open(const std::string &path);

  ~Nvrtc();

  llvm::StringRef version() const { return versionText; } // "13.0"

  // The options of a kernel's compile but the architecture's.
  static llvm::SmallVector<const char *> options(const CudaKernel &kernel);

  // Compiles for `arch` ("sm_90a"). May be called by several threads at once. An error names the
  // kernel and the first complaint; the source and all that was said of it are then in a file
  // that the error names.
  llvm::Expected<Cubin> compile(const CudaKernel &kernel, llvm::StringRef arch) const;

private:
  struct Functions;
  Nvrtc();

  void *library = nullptr;
  std::unique_ptr<Functions> api;
  std::string versionText;
};

} // namespace lmc::codegen
