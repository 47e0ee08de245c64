// Computes whether the disk of a run's folder has room for all files that the run still writes.
#pragma once

#include "runtime/step/Session.h"
#include "runtime/watch/Findings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// The space on the disk that the rest of a run needs.
struct DiskNeed {
  uint64_t checkpoint = 0;               // maximum bytes of one checkpoint
  uint64_t keep = 0;                     // checkpoint.keep; 0: all
  uint64_t present = 0;                  // number of complete checkpoints that exist already
  uint64_t saves = 0;                    // number of saves to come
  uint64_t kept = 0;                     // number of these saves that no later save removes
  uint64_t exportBytes = 0, exports = 0; // bytes of one export; number of exports to come
  uint64_t logs = 0;                     // bytes of metrics.jsonl for the steps to come

  // Returns the number of bytes that the next saves add. If `keep` > 0, these are the saves until
  // `keep` + 1 checkpoints exist. If `keep` is 0, these are the next two saves.
  uint64_t forSaves() const;
  // Returns the bytes that the rest of the run adds, less the checkpoints that it removes again.
  uint64_t forJob() const;
};

// Returns the space that a run still needs after `step` of `totalSteps` steps. Assumes that an
// export is as large as the master weights. With several ranks, adds the size of one more export.
Result<DiskNeed> diskNeed(const Session &session, const RunOptions &options,
                          const std::vector<RunPhase> &phases, uint64_t step, uint64_t totalSteps);

// Returns the absolute path of `given` if that path exists, else the nearest existing folder above
// it. The result is on the disk to which a new file `given` would be written.
std::string nearestFolder(const std::string &given);

// Compares the needed space with `free`, the free bytes on the disk of `place`. Error: the next
// checkpoints do not fit. Warning: they fit, but not all other files that the run still writes.
Finding judgeDisk(const DiskNeed &need, uint64_t free, const std::string &place);

// Returns the number of folders in OUT/checkpoints that have the name of a checkpoint.
uint64_t countCheckpoints(const std::string &out);
// Returns how many multiples of `interval` are in (from, to]; 0 if `interval` is 0.
uint64_t multiplesIn(uint64_t from, uint64_t to, int64_t interval);
// Returns the size of the plan's master weights in bytes.
uint64_t exportBytesOf(const PlanFile &plan);

} // namespace lmc
