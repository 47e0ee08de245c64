// A cache of compiled kernels on disk, for all jobs and processes.
//
// The name of an entry's file is the hash of everything that its contents depend on. A file is
// written under a temporary name and then renamed; it contains its key and a checksum. A damaged or
// unwritable cache costs time but never makes a compile fail.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc::codegen {

class KernelCache {
public:
  static constexpr uint64_t kMaxBytes = uint64_t(1) << 30;

  // Returns $LMC_CACHE_DIR, or else $XDG_CACHE_HOME/lmc/kernels, or else $HOME/.cache/lmc/kernels.
  // Returns "" if none of these variables is set.
  static std::string defaultDirectory();

  // If `directory` is empty, find() finds nothing and keep() stores nothing.
  explicit KernelCache(std::string directory, uint64_t mostBytes = kMaxBytes);

  // Deletes entries that are too old or too many, unless a process did so recently.
  ~KernelCache();

  // Returns a hash of `parts`, everything that the compiled code depends on, as 64 hexadecimal
  // digits. The first part names the kind of code and the version of its format.
  static std::string key(llvm::ArrayRef<llvm::StringRef> parts);

  // find() returns the entry of `key`, or nothing. keep() adds an entry. Both are thread-safe.
  std::optional<std::string> find(llvm::StringRef key) const;
  void keep(llvm::StringRef key, llvm::StringRef code) const;

private:
  std::string pathOf(llvm::StringRef key) const;

  const std::string directory;
  const uint64_t mostBytes;
};

} // namespace lmc::codegen
