// The watch of checkpoints that take longer than usual (monitor/SlowSave.h).
#include "runtime/monitor/SlowSave.h"
#include "runtime/watch/Watch.h"

#include <fmt/format.h>

namespace lmc {
namespace {

class SlowSaves final : public Watch {
public:
  explicit SlowSaves(const CheckpointState &progress) : progress(progress) {}

  WatchFindings writing(uint64_t step, double seconds) override {
    return describe(step, "has been written for", judge.goesOn(seconds));
  }
  WatchFindings saved(uint64_t step, std::optional<double> seconds) override {
    if (seconds)
      return describe(step, "took", judge.ended(*seconds));
    judge.failed();
    return {};
  }

private:
  WatchFindings describe(uint64_t step, const char *how,
                         const std::optional<SlowSaveWatch::Found> &slow) const {
    if (!slow)
      return {};
    return {{.warning = fmt::format("the checkpoint of step {} {} {:.3g} s, and one usually takes "
                                    "{:.3g} s: the disk is slow, or others use it",
                                    step, how, slow->seconds, slow->usual),
             .event = "slow_save",
             .facts = {{"step", progress.step},
                       {"saved_step", step},
                       {"seconds", slow->seconds},
                       {"usual_seconds", slow->usual}}}};
  }

  const CheckpointState &progress;
  SlowSaveWatch judge;
};

} // namespace

Result<std::unique_ptr<Watch>> watchSlowSaves(const WatchedRun &run) {
  return makeWatch<SlowSaves>(run.session.progress);
}

} // namespace lmc
