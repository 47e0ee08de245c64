// The watch of tensors whose updates are too large or absent (monitor/UpdateWatch.h).
#include "runtime/monitor/UpdateWatch.h"
#include "runtime/watch/Watch.h"

namespace lmc {
namespace {

class Updates final : public Watch {
public:
  Updates(double limit, int64_t warmupEnd) : limit(limit), judge(limit, warmupEnd) {}

  const char *stateKey() const override { return "updates"; }
  std::string state() const override { return judge.state(); }
  Result<void> restore(const std::string &text) override { return judge.restore(text); }

  WatchFindings updated(const StepUpdates &step) override {
    auto verdict = judge.observe(step);
    if (!verdict)
      return {};
    nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
    for (const UpdateWatch::OutOfRange &tensor : verdict->tensors) {
      tensors[tensor.name]["fault"] = nameOf(tensor.fault);
      if (tensor.ratio)
        tensors[tensor.name]["ratio"] = *tensor.ratio;
    }
    return {{.warning = std::move(verdict->warning),
             .event = "update_ratio",
             .facts = {{"step", step.step}, {"limit", limit}, {"tensors", std::move(tensors)}}}};
  }

private:
  const double limit;
  UpdateWatch judge;
};

} // namespace

Result<std::unique_ptr<Watch>> watchUpdates(const WatchedRun &run) {
  const TrainSettings &settings = run.session.settings;
  const GuardConfig &guard = settings.config.guard;
  return makeWatch<Updates>(guard.action == "off" ? 0 : guard.updateRatio,
                            settings.lr.begin + settings.lr.warmupIters);
}

} // namespace lmc
