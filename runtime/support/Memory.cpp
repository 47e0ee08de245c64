#include "runtime/support/Memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace lmc {

static std::optional<uint64_t> numberIn(const std::string &path) {
  uint64_t number = 0;
  std::ifstream file(path);
  return file >> number ? std::optional(number) : std::nullopt; // "max": no limit
}

// https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max, memory.current). Clean pages of
// files count as used there, though they can be had.
static std::optional<uint64_t> leftInGroup() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(groups, line))
    if (line.starts_with("0::"))
      path = "/sys/fs/cgroup" + line.substr(3);
  const auto limit = numberIn(path + "/memory.max"), used = numberIn(path + "/memory.current");
  if (path.empty() || !limit || !used)
    return std::nullopt;
  uint64_t inFiles = 0;
  std::ifstream statistics(path + "/memory.stat");
  std::string name;
  for (uint64_t value = 0; statistics >> name >> value;)
    if (name == "inactive_file")
      inFiles = value;
  return *limit - std::min(*limit, *used - std::min(*used, inFiles));
}

std::optional<uint64_t> availableMemory() {
  std::optional<uint64_t> available;
  std::ifstream facts("/proc/meminfo");
  std::string line;
  while (std::getline(facts, line))
    if (line.starts_with("MemAvailable:"))
      available = std::stoull(line.substr(13)) * 1024;
  if (const auto left = leftInGroup(); left && available)
    available = std::min(*available, *left);
  return available;
}

} // namespace lmc
