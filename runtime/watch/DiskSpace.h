// Computes whether the disk of a run's folder has room for all files that the run still writes.
#pragma once

#include "runtime/step/Session.h"
#include "runtime/watch/Findings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// Bytes on the disk that a run still needs.
struct DiskNeed {
  uint64_t checkpoint = 0;               // maximum bytes of one checkpoint
  uint64_t keep = 0;                     // checkpoint.keep; 0: all
  uint64_t present = 0;                  // number of complete checkpoints that exist already
  uint64_t saves = 0;                    // number of saves to come
  uint64_t kept = 0;                     // number of these saves that no later save removes
  uint64_t exportBytes = 0, exports = 0; // bytes of one; number of exports to come
  uint64_t logs = 0;                     // bytes of metrics.jsonl for the steps to come

  // Returns the additional bytes for checkpoints: up to `keep` + 1 of them exist during a save. If
  // all are kept: the bytes of two.
  uint64_t forSaves() const;
  // Returns the bytes that all files of the run add, without files that the run removes again.
  uint64_t forJob() const;
};

// Returns what a run that has done `step` of `totalSteps` steps still needs. An export is assumed
// to have the bytes of the master weights; several ranks need them twice.
Result<DiskNeed> diskNeed(const Session &session, const RunOptions &options,
                          const std::vector<RunPhase> &phases, uint64_t step, uint64_t totalSteps);

// Returns the absolute path of `given` or, if it does not exist yet, of the nearest folder above it
// that exists. Both are on the same disk.
std::string nearestFolder(const std::string &given);

// Judges whether `free` bytes on the disk of `place` are enough. Error: the next checkpoints do not
// fit. Warning: they fit, but not all files of the job do.
Finding judgeDisk(const DiskNeed &need, uint64_t free, const std::string &place);

// Returns the number of folders in OUT/checkpoints that have the name of a checkpoint.
uint64_t countCheckpoints(const std::string &out);
// Returns the number of multiples of `interval` in (from, to]; 0 for the interval 0.
uint64_t multiplesIn(uint64_t from, uint64_t to, int64_t interval);
// Returns the bytes of the plan's master weights.
uint64_t exportBytesOf(const PlanFile &plan);

} // namespace lmc
