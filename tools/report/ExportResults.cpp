#include "tools/report/ExportResults.h"

#include "ground/support/File.h"

#include <fmt/format.h>

#include <charconv>

namespace lmc {

void ExportResults::update() {
  std::set<int64_t> found;
  if (const auto names = exists(folder) ? listFolder(folder) : std::vector<std::string>())
    for (const std::string &name : *names) {
      int64_t step = 0;
      const char *end = name.data() + name.size();
      const auto read = std::from_chars(name.data(), end, step);
      if (read.ec == std::errc() && read.ptr == end &&
          exists(fmt::format("{}/{}/{}", folder, name, kEvaluationComplete)))
        found.insert(step);
    }
  while (found.size() > kMaxSteps)
    found.erase(found.begin());
  std::erase_if(kept, [&](const auto &entry) { return found.count(entry.first) == 0; });
  for (const int64_t step : found)
    if (kept.count(step) == 0)
      if (auto results = readEvaluation(fmt::format("{}/{}", folder, step)))
        kept.emplace(step, std::move(*results));
}

} // namespace lmc
