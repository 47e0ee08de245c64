// Watches for ranks for which the other ranks must wait (comm/SlowRank.h).
#include "ground/plan/TargetRules.h"
#include "runtime/comm/SlowRank.h"
#include "runtime/watch/Watch.h"

#include <fmt/format.h>

namespace lmc {
namespace {

class SlowRankFinder final : public Watch {
public:
  explicit SlowRankFinder(const World &world) : world(world) {}

  WatchFindings reported(const StepRecord &record) override {
    if (record.step % int64_t(Progress::kBusyWindow) != 0)
      return {};
    const std::optional<SlowRanks> slow = judge.observe(world.progressOfRanks());
    if (!slow)
      return {};
    const bool isOne = slow->ranks.size() == 1;
    return {
        {.warning = fmt::format("{} {} busy for {:.3g} s of a step (reading data or computing), "
                                "and the others for {:.3g} s: they wait for {}",
                                world.namesOf(slow->ranks), isOne ? "is" : "are", slow->seconds,
                                slow->others, isOne ? "it" : "them"),
         .event = "slow_rank",
         .facts = {{"step", record.step},
                   {"ranks", slow->ranks},
                   {"busy_seconds", slow->seconds},
                   {"others_busy_seconds", slow->others}}}};
  }

private:
  const World &world;
  SlowRankWatch judge;
};

} // namespace

// Plans for GPUs do not have this watch: the host cannot see how long a GPU is busy.
Result<std::unique_ptr<Watch>> watchSlowRanks(const WatchedRun &run) {
  if (!plan::computesOnHost(**run.session.plan))
    return noWatch();
  return makeWatch<SlowRankFinder>(run.session.world);
}

} // namespace lmc
