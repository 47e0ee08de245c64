#include "runtime/comm/Agree.h"
#include "runtime/watch/Watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lmc {

Result<Watches> Watches::open(const WatchedRun &run) {
  using Maker = Result<std::unique_ptr<Watch>> (*)(const WatchedRun &);
#define LMC_WATCH(NAME) NAME,
  constexpr Maker kMakers[] = {
#include "runtime/watch/Watches.def"
  };
#undef LMC_WATCH
  Watches watches;
  for (const Maker make : kMakers) {
    LMC_LET(made, allSucceed(run.session.world.all(), make(run)));
    if (*made)
      watches.list.push_back(std::move(*made));
  }
  return watches;
}

StepLimits Watches::limitsOf(int64_t step) const {
  StepLimits limits;
  for (const auto &watch : list) {
    const StepLimits own = watch->limitsOf(step);
    limits.loss = std::min(limits.loss, own.loss);
    limits.norm = std::min(limits.norm, own.norm);
  }
  return limits;
}

std::optional<uint64_t> Watches::suspectSince() const {
  std::optional<uint64_t> first;
  for (const auto &watch : list)
    if (const auto own = watch->suspectSince())
      first = std::min(first.value_or(*own), *own);
  return first;
}

bool Watches::isDue(uint64_t step) const {
  return std::ranges::any_of(list, [&](const auto &watch) { return watch->isDue(step); });
}

Result<WatchFindings> Watches::look(uint64_t step) {
  WatchFindings all;
  for (const auto &watch : list) {
    if (!watch->isDue(step))
      continue;
    LMC_LET(found, watch->look(step));
    std::ranges::move(*found, std::back_inserter(all));
  }
  return all;
}

void Watches::save(std::map<std::string, std::string> &extra) const {
  for (const auto &watch : list)
    if (const char *const key = watch->stateKey())
      if (std::string state = watch->state(); !state.empty())
        extra[key] = std::move(state);
}

std::vector<std::string> Watches::restore(const std::map<std::string, std::string> &extra) {
  std::vector<std::string> warnings;
  for (const auto &watch : list) {
    const char *const key = watch->stateKey();
    const auto saved = key ? extra.find(key) : extra.end();
    if (saved == extra.end())
      continue;
    if (auto restored = watch->restore(saved->second); !restored)
      warnings.push_back(restored.error().message);
  }
  return warnings;
}

} // namespace lmc
