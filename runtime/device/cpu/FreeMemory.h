// Finds how much memory of this machine a new process can still get.
#pragma once

#include <cstdint>
#include <string>

namespace lmc::cpu {

struct FreeMemory {
  uint64_t bytes = 0;
  std::string source; // source of the number: "MemAvailable", "the control group /a"
};

// Returns the least of MemAvailable in /proc/meminfo and, for the control group (cgroup, version 1
// or 2) of this process and each group above it, its limit - its use + its file cache that can be
// dropped (inactive_file in memory.stat). A limit that cannot be read does not count. `root` is the
// folder that has proc/ and sys/; tests give another one. Returns UINT64_MAX bytes if nothing is
// known. https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/memory.html
FreeMemory freeMemory(const std::string &root = "");

} // namespace lmc::cpu
