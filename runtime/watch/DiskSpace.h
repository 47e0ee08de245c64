// Whether the disk of a run's folder has room for what the run still writes.
#pragma once

#include "runtime/settings/RunPhases.h"
#include "runtime/step/Session.h"
#include "runtime/watch/Findings.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Bytes on the disk that a run still needs.
struct DiskNeed {
  uint64_t checkpoint = 0;               // bytes of one, at most
  uint64_t keep = 0;                     // checkpoint.keep; 0: all
  uint64_t present = 0;                  // complete checkpoints that are there already
  uint64_t saves = 0;                    // that are still to come
  uint64_t kept = 0;                     // of these, that no later save removes
  uint64_t exportBytes = 0, exports = 0; // bytes of one, and how many are still to come
  uint64_t logs = 0; // bytes of metrics.jsonl for the steps that are still to come

  // Returns the bytes of the `keep` + 1 checkpoints that are there while a save replaces the oldest
  // one, without those that are there already. If all are kept: those of the next two saves.
  uint64_t forSaves() const;
  // Returns the bytes of all that the run writes, without what it removes.
  uint64_t forJob() const;
};

// Returns what a run in the folder `out` needs that has done `step` of `totalSteps` steps. A run of
// several ranks also needs the weights a second time while it exports them. An export is taken to
// have the bytes of the master weights.
Result<DiskNeed> diskNeed(const Session &session, const RunOptions &options,
                          const std::vector<RunPhase> &phases, uint64_t step, uint64_t totalSteps);

// Returns the path whose disk will hold OUT/checkpoints: that folder or, if it does not exist yet,
// the nearest folder above it that does.
std::string diskOf(const std::string &out);

// Judges whether `free` bytes on the disk of `place` are enough: an Error if the checkpoints do not
// fit, a Warning if what the job writes in all does not fit.
Finding judgeDisk(const DiskNeed &need, uint64_t free, const std::string &place);

// Looks, before each save, whether the disk has room for the saves that come next.
class SpaceWatch {
public:
  // `session` must outlive this object.
  SpaceWatch(const Session &session, std::string out, uint64_t totalSteps)
      : session(session), out(std::move(out)), totalSteps(totalSteps) {}

  // Returns a warning if the disk has no room for the save of the present step, the next save, and
  // the exports until then. Returns it once, and again only after there was room. A disk that
  // cannot be measured gives no warning.
  std::optional<std::string> look();

private:
  const Session &session;
  const std::string out;
  const uint64_t totalSteps;
  bool hasWarned = false;
};

} // namespace lmc
