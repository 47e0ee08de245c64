#include "runtime/watch/DiskSpace.h"

#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/folder/DeviceTensors.h"
#include "runtime/folder/RunDirectory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace lmc {

// A step adds about 450 bytes to metrics.jsonl (60 more per data source), and 120 to log.txt.
static constexpr uint64_t kLogBytesPerStep = 1024;

uint64_t countCheckpoints(const std::string &out) {
  uint64_t count = 0;
  std::error_code failed;
  for (const auto &entry : std::filesystem::directory_iterator(out + "/checkpoints", failed)) {
    const std::string name = entry.path().filename().string();
    count += name.find_first_not_of("0123456789") == std::string::npos;
  }
  return count;
}

uint64_t multiplesIn(uint64_t from, uint64_t to, int64_t interval) {
  const auto every = static_cast<uint64_t>(interval);
  return every == 0 || to < from ? 0 : to / every - from / every;
}

uint64_t exportBytesOf(const PlanFile &plan) {
  uint64_t bytes = 0;
  for (const TensorView &view : viewsOfKind(plan, plan::VariableKind::Parameter))
    bytes += view.bytes;
  return bytes;
}

uint64_t DiskNeed::forSaves() const {
  if (keep == 0)
    return std::clamp<uint64_t>(saves, 1, 2) * checkpoint;
  return (keep + 1 - std::min(present, keep)) * checkpoint;
}

uint64_t DiskNeed::forJob() const {
  return (keep == 0 ? saves * checkpoint : forSaves() + kept * checkpoint) + exports * exportBytes +
         logs;
}

Result<DiskNeed> diskNeed(const Session &session, const RunOptions &options,
                          const std::vector<RunPhase> &phases, uint64_t step, uint64_t totalSteps) {
  const TrainSettings &settings = session.settings;
  LMC_LET(bytes, checkpointBytes(*session.plan));
  DiskNeed need;
  need.checkpoint = *bytes;
  need.keep = static_cast<uint64_t>(settings.config.checkpoint.keep);
  need.present = countCheckpoints(options.out);
  if (totalSteps <= step)
    return need;
  need.saves = multiplesIn(step, totalSteps - 1, settings.checkpointInterval) + 1;
  for (const RunPhase &phase : phases)
    if (phase.lastStep > step && phase.lastStep < totalSteps &&
        multiplesIn(phase.lastStep - 1, phase.lastStep, settings.checkpointInterval) == 0)
      ++need.saves;
  // Later saves do not remove the best checkpoint or checkpoints at multiples of keep_every.
  if (settings.config.checkpoint.keepEvery > 0 && settings.checkpointInterval > 0)
    need.kept =
        multiplesIn(step, totalSteps - 1,
                    std::lcm(settings.config.checkpoint.keepEvery, settings.checkpointInterval));
  need.kept += settings.config.checkpoint.keepBest.empty() ? 0 : 1;
  need.exports = multiplesIn(step, totalSteps, settings.config.checkpoint.exportInterval) +
                 (options.exportDirectory.empty() ? 0 : 1);
  need.exportBytes = need.exports > 0 ? exportBytesOf(*session.plan) : 0;
  if (need.exports > 0 && session.world.size() > 1)
    ++need.exports;
  need.logs = (totalSteps - step) * kLogBytesPerStep;
  return need;
}

std::string nearestFolder(const std::string &given) {
  std::filesystem::path path = std::filesystem::absolute(given).lexically_normal();
  if (!path.has_filename()) // "runs/a/"
    path = path.parent_path();
  std::error_code failed;
  while (!std::filesystem::exists(path, failed) && path.has_relative_path())
    path = path.parent_path();
  return path.string();
}

Finding judgeDisk(const DiskNeed &need, uint64_t free, const std::string &place) {
  const std::string kept =
      need.keep == 0
          ? fmt::format("the next {} checkpoint(s) of {}", std::clamp<uint64_t>(need.saves, 1, 2),
                        formatBytes(need.checkpoint))
          : fmt::format("{} checkpoints of {} (checkpoint.keep + 1){}", need.keep + 1,
                        formatBytes(need.checkpoint),
                        need.present == 0 ? ""
                                          : fmt::format(", of which {} are there",
                                                        std::min(need.present, need.keep)));
  const std::string room = fmt::format("{} are free on the disk of {}", formatBytes(free), place);
  if (need.forSaves() > free)
    return {"disk", Severity::Error,
            fmt::format("{} need {}, and {}: free {}, lower checkpoint.keep, or give another --out",
                        kept, formatBytes(need.forSaves()), room,
                        formatBytes(need.forSaves() - free)),
            true};
  std::string rest;
  if (need.keep == 0)
    rest += fmt::format("{} saves, all of which are kept (checkpoint.keep = 0), ", need.saves);
  else if (need.kept > 0)
    rest += fmt::format("{} checkpoint(s) of keep_every and keep_best, ", need.kept);
  if (need.exports > 0)
    rest += fmt::format("{} export(s) of {}, ", need.exports, formatBytes(need.exportBytes));
  rest += fmt::format("{} of logs", formatBytes(need.logs));
  const std::string all =
      fmt::format("over the job, with {}, it writes {}", rest, formatBytes(need.forJob()));
  if (need.forJob() > free)
    return {"disk", Severity::Warning,
            fmt::format("{} fit, but {}, and {}: make room, keep fewer checkpoints, export less "
                        "often (checkpoint.export_interval), or give another --out",
                        kept, all, room)};
  return {"disk", Severity::Ok,
          fmt::format("{} need {}; {}; {}", kept, formatBytes(need.forSaves()), all, room)};
}

} // namespace lmc
