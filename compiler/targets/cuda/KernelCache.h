// Compiled kernels on disk, so that a kernel is compiled once for all jobs and processes.
//
// An entry is a file named by the hash of all that its contents depend on. Files are written
// beside and renamed, carry their key and a checksum, and are deleted when unused for long or
// when together they are too large. Trouble with the cache costs time, never a compile.
#pragma once

#include "compiler/targets/cuda/Nvrtc.h"

#include <optional>
#include <string>

namespace lmc::codegen {

class KernelCache {
public:
  static constexpr uint64_t kMostBytes = uint64_t(1) << 30;

  // $LMC_CACHE_DIR, else $XDG_CACHE_HOME/lmc/kernels, else ~/.cache/lmc/kernels; "" without
  // any of them.
  static std::string defaultDirectory();

  // "" turns the cache off: nothing is found, nothing kept.
  explicit KernelCache(std::string directory, uint64_t mostBytes = kMostBytes);

  // Deletes what is too old or too much, where nobody did for a while.
  ~KernelCache();

  // 64 hexadecimal digits: of the source, all device headers, the architecture, the options and
  // NVRTC's version.
  static std::string key(const CudaKernel &kernel, llvm::StringRef arch, llvm::StringRef nvrtc);

  // May be called by several threads at once.
  std::optional<Cubin> find(llvm::StringRef key) const;
  void keep(llvm::StringRef key, const Cubin &cubin) const;

private:
  std::string pathOf(llvm::StringRef key) const;

  const std::string directory;
  const uint64_t mostBytes;
};

} // namespace lmc::codegen
