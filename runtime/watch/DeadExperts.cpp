#include "runtime/watch/DeadExperts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmc {

WatchFindings DeadExperts::settled(const StepRecord &record) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::object(); // the dead experts by layer
  bool isNew = false;
  std::vector<std::string> named;
  size_t dead = 0, all = 0;
  for (const RouterRecord &router : record.routers) {
    std::vector<int64_t> &own = idle[router.layer];
    own.resize(router.counts.size());
    all += own.size();
    std::vector<size_t> experts;
    for (size_t e = 0; e < own.size(); ++e) {
      own[e] = router.counts[e] > 0 ? 0 : own[e] + 1;
      isNew |= own[e] == steps;
      if (own[e] >= steps)
        experts.push_back(e);
    }
    if (experts.empty())
      continue;
    constexpr size_t kNamed = 4; // layers
    dead += experts.size();
    if (layers.size() < kNamed)
      named.push_back(fmt::format("{} of layer {}", fmt::join(experts, ", "), router.layer));
    layers[std::to_string(router.layer)] = experts;
  }
  if (!isNew)
    return {};
  if (layers.size() > named.size())
    named.push_back(fmt::format("and those of {} more layers", layers.size() - named.size()));
  return {{.warning = fmt::format("step {}: {} of {} experts got no token in the last {} steps "
                                  "(guard.dead_expert): expert {}; a higher "
                                  "model.router_aux_loss_coef keeps experts busy",
                                  record.step, dead, all, steps, fmt::join(named, "; ")),
           .event = "dead_expert",
           .facts = {{"step", record.step}, {"steps", steps}, {"experts", std::move(layers)}}}};
}

Result<std::unique_ptr<Watch>> watchDeadExperts(const WatchedRun &run) {
  const GuardConfig &guard = run.session.settings.config.guard;
  if (guard.action == "off" || guard.deadExpert == 0)
    return noWatch();
  return makeWatch<DeadExperts>(guard.deadExpert);
}

} // namespace lmc
