#include "runtime/step/Functions.h"

#include "ground/support/File.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
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

Result<std::unique_ptr<Functions>> Functions::record(const PlanFile &plan, Device &device,
                                                     Profile *profile, FunctionObserver *observer) {
  std::unique_ptr<Functions> recorded(new Functions(device, profile, observer));
  for (uint32_t i = 0; i < plan->functions()->size(); ++i) {
    LMC_LET(executable, device.record(static_cast<int>(i)));
    recorded->functions[plan->functions()->Get(i)->name()->str()] = {i, std::move(*executable)};
  }
  return recorded;
}

Result<void> Functions::submit(const Function &function) {
  if (observer && observer->isRecording())
    return observer->run(device, *function.executable, function.index);
  return device.submit(*function.executable);
}

Result<void> Functions::run(const std::string &name) {
  auto found = functions.find(name);
  if (found == functions.end())
    return userError("the plan has no function '{}'", name);
  if (!profile)
    return submit(found->second);
  auto start = std::chrono::steady_clock::now();
  LMC_TRY(submit(found->second));
  LMC_TRY(device.synchronize());
  profile->add(name,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

} // namespace lmc
