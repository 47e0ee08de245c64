// Watches whether the disk has room for the next saves (DiskSpace.h).
#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/folder/RunDirectory.h"
#include "runtime/watch/DiskSpace.h"
#include "runtime/watch/Watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc {
namespace {

class Space final : public Watch {
public:
  explicit Space(const WatchedRun &run)
      : session(run.session), out(run.out), totalSteps(run.totalSteps) {}

  // Warns if the disk lacks room for this save, the next save, and the exports up to the next save.
  // After a warning, warns again only once a save has found enough room.
  WatchFindings saving() override {
    const TrainSettings &settings = session.settings;
    const uint64_t step = session.progress.step;
    const auto bytes = checkpointBytes(*session.plan);
    const auto free = freeBytes(nearestFolder(out + "/checkpoints"));
    if (!bytes || !free)
      return {};
    const auto keep = static_cast<uint64_t>(settings.config.checkpoint.keep);
    // Until `keep` checkpoints exist, each save adds one. After that, it also removes one.
    const bool adds = keep == 0 || countCheckpoints(out) < keep;
    const uint64_t saves = adds && step < totalSteps ? 2 : 1;
    const auto interval = static_cast<uint64_t>(settings.checkpointInterval);
    const uint64_t next = interval > 0 ? std::min(totalSteps, step + interval) : totalSteps;
    const int64_t exportInterval = settings.config.checkpoint.exportInterval;
    const uint64_t exports = step == 0 ? 0 : multiplesIn(step - 1, next, exportInterval);
    const uint64_t need =
        saves * *bytes + (exports > 0 ? exports * exportBytesOf(*session.plan) : 0);
    const bool warns = need > *free && !hasWarned;
    hasWarned = need > *free;
    if (!warns)
      return {};
    return {
        {.warning = fmt::format(
             "{}: the next {} save(s){} need {}, and the disk has {} free: make room, or lower "
             "checkpoint.keep at the next start; the run goes on",
             out, saves, exports > 0 ? fmt::format(" and {} export(s)", exports) : std::string(),
             formatBytes(need), formatBytes(*free))}};
  }

private:
  const Session &session;
  const std::string out;
  const uint64_t totalSteps;
  bool hasWarned = false;
};

} // namespace

// Only rank 0 checks the disk.
Result<std::unique_ptr<Watch>> watchSpace(const WatchedRun &run) {
  if (run.session.world.rank() != 0)
    return noWatch();
  return makeWatch<Space>(run);
}

} // namespace lmc
