// The watch of experts that no token chooses (monitor/Routers.h).
#include "runtime/monitor/Routers.h"
#include "runtime/watch/Watch.h"

namespace lmc {
namespace {

class DeadExperts final : public Watch {
public:
  explicit DeadExperts(int64_t steps) : steps(steps), judge(steps) {}

  WatchFindings settled(const StepRecord &record) override {
    auto verdict = judge.observe(record.step, record.routers);
    if (!verdict)
      return {};
    nlohmann::ordered_json layers = nlohmann::ordered_json::object();
    for (const auto &[layer, experts] : verdict->experts)
      layers[std::to_string(layer)] = experts;
    return {{.warning = std::move(verdict->warning),
             .event = "dead_expert",
             .facts = {{"step", record.step}, {"steps", steps}, {"experts", std::move(layers)}}}};
  }

private:
  const int64_t steps;
  DeadExpertWatch judge;
};

} // namespace

Result<std::unique_ptr<Watch>> watchDeadExperts(const WatchedRun &run) {
  const GuardConfig &guard = run.session.settings.config.guard;
  if (guard.action == "off" || guard.deadExpert == 0)
    return noWatch();
  return makeWatch<DeadExperts>(guard.deadExpert);
}

} // namespace lmc
