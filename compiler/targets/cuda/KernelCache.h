// Compiled kernels on disk, so that a kernel is compiled once for all jobs and processes.
//
// An entry is a file named by the hash of everything that its contents depend on. A file is written
// under another name and then renamed; it contains its key and a checksum. Files are deleted when
// they were unused for long or when together they are too large. A damaged or unwritable cache
// costs time but never makes a compile fail.
#pragma once

#include "compiler/targets/cuda/Nvrtc.h"

#include <optional>
#include <string>

namespace lmc::codegen {

class KernelCache {
public:
  static constexpr uint64_t kMostBytes = uint64_t(1) << 30;

  // Returns $LMC_CACHE_DIR, else $XDG_CACHE_HOME/lmc/kernels, else ~/.cache/lmc/kernels; "" if none
  // of these variables is set.
  static std::string defaultDirectory();

  // An empty directory turns the cache off: find() finds nothing and keep() stores nothing.
  explicit KernelCache(std::string directory, uint64_t mostBytes = kMostBytes);

  // Deletes entries that are too old, or too many, unless a process did so recently.
  ~KernelCache();

  // Returns 64 hexadecimal digits: a hash of the source, all device headers, the architecture, the
  // options and NVRTC's version.
  static std::string key(const CudaKernel &kernel, llvm::StringRef arch, llvm::StringRef nvrtc);

  // Several threads may call these at the same time.
  std::optional<Cubin> find(llvm::StringRef key) const;
  void keep(llvm::StringRef key, const Cubin &cubin) const;

private:
  std::string pathOf(llvm::StringRef key) const;

  const std::string directory;
  const uint64_t mostBytes;
};

} // namespace lmc::codegen
