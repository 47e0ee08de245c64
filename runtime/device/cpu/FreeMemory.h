// Finds how much memory of this machine a new process can still get.
#pragma once

#include <cstdint>
#include <string>

namespace lmc::cpu {

struct FreeMemory {
  uint64_t bytes = 0;
  std::string source; // what limits `bytes`: "MemAvailable", "the control group /a"
};

// Returns the minimum of several numbers of bytes: MemAvailable in /proc/meminfo and, for the
// control group (cgroup, version 1 or 2) of this process and each group above it,
//   limit - used bytes + bytes of file cache that can be dropped (inactive_file in memory.stat).
// If no number is known, returns UINT64_MAX. `root` is the folder that contains proc/ and sys/.
// https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/memory.html
FreeMemory freeMemory(const std::string &root = "");

} // namespace lmc::cpu
