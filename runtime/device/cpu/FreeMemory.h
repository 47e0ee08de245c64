// Finds how much memory of this machine a new process can still get.
#pragma once

#include <cstdint>
#include <string>

namespace lmc::cpu {

struct FreeMemory {
  uint64_t bytes = 0;
  std::string source; // what limits `bytes`: "MemAvailable", "the control group /a"
};

// Returns the minimum of MemAvailable in /proc/meminfo and, for the control group (cgroup, version
// 1 or 2) of this process and each group above it,
//   limit - used bytes + bytes of file cache that can be dropped (inactive_file in memory.stat).
// A number that cannot be read does not count; without any number, returns UINT64_MAX bytes. `root`
// is the folder that has proc/ and sys/; only tests change it.
// https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/memory.html
FreeMemory freeMemory(const std::string &root = "");

} // namespace lmc::cpu
