#include "runtime/device/cpu/FreeMemory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace lmc::cpu {

namespace {

// The folder and the file names of one version of Linux control groups.
struct GroupFiles {
  const char *root, *limit, *use, *dropped;
};
constexpr GroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
constexpr GroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                               "memory.usage_in_bytes", "total_inactive_file"};

// Returns the number in a file; nullopt if the file is missing or has the text "max".
std::optional<uint64_t> numberIn(const std::string &path) {
  uint64_t number = 0;
  std::ifstream file(path);
  return file >> number ? std::optional(number) : std::nullopt;
}

// Returns NUMBER of a file's line "KEY NUMBER", or 0.
uint64_t numberOf(const std::string &path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word)
    if (uint64_t number = 0; word == key && file >> number)
      return number;
  return 0;
}

// Lowers `least` to the minimum of itself and the free bytes of `group` and of each group above it.
void considerGroups(const std::string &root, const GroupFiles &files, std::string group,
                    FreeMemory &least) {
  for (;;) {
    const std::string folder = root + files.root + group + "/";
    const auto limit = numberIn(folder + files.limit), use = numberIn(folder + files.use);
    if (limit && use) {
      const uint64_t held = *use - std::min(*use, numberOf(folder + "memory.stat", files.dropped));
      const uint64_t left = *limit - std::min(*limit, held);
      if (left < least.bytes)
        least = {left, "the limit of the control group " + (group.empty() ? "/" : group)};
    }
    if (group.empty())
      return;
    group.erase(group.rfind('/'));
  }
}

} // namespace

FreeMemory freeMemory(const std::string &root) {
  FreeMemory least{UINT64_MAX, "nothing known"};
  if (const uint64_t kib = numberOf(root + "/proc/meminfo", "MemAvailable:"); kib > 0)
    least = {kib * 1024, "MemAvailable"};
  // A line of /proc/self/cgroup is "0::/GROUP" (cgroup v2) or "NUMBER:CONTROLLERS:/GROUP" (v1).
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string two, one;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    std::string path = line.substr(second + 1);
    if (path == "/" || !path.starts_with('/'))
      path.clear();
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,")
      two = path;
    else if (controllers.find(",memory,") != std::string::npos)
      one = path;
  }
  considerGroups(root, kVersion2, two, least);
  considerGroups(root, kVersion1, one, least);
  return least;
}

} // namespace lmc::cpu
