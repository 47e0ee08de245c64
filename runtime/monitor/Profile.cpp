#include "runtime/monitor/Profile.h"

#include "ground/support/File.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

namespace lmc {

void Profile::add(const std::string &function, double seconds) {
  Entry &entry = entries[function];
  entry.least = entry.calls == 0 ? seconds : std::min(entry.least, seconds);
  entry.seconds += seconds;
  ++entry.calls;
}

Result<void> Profile::write(const std::string &path) const {
  std::vector<std::pair<std::string, Entry>> sorted(entries.begin(), entries.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](auto &a, auto &b) { return a.second.seconds > b.second.seconds; });
  auto functions = nlohmann::ordered_json::array();
  for (const auto &[name, entry] : sorted)
    functions.push_back({{"name", name},
                         {"calls", entry.calls},
                         {"seconds", entry.seconds},
                         {"mean_seconds", entry.seconds / static_cast<double>(entry.calls)},
                         {"min_seconds", entry.least}});
  nlohmann::ordered_json document;
  document["functions"] = std::move(functions);
  return writeTextFile(path, document.dump(2) + "\n");
}

} // namespace lmc
