// Checks a run's folder before the first step, without changing the run's files.
#pragma once

#include "runtime/watch/Findings.h"

#include <optional>
#include <string>

namespace lmc {

// Prefix of the names of files and folders that a check makes in nearestFolder(OUT) and removes.
inline constexpr const char *kScratchPrefix = ".lmc-check-";

// Checks that files can be written in nearestFolder(out), and that no other run has the lock of
// `out`. Removes the files of checks that were killed at least ten minutes ago.
void checkFolder(const std::string &out, Findings &findings);

// Verifies the newest checkpoint of `out` and, if `start` is set, the checkpoint `start`.
void checkCheckpoints(const std::string &out, const std::optional<std::string> &start,
                      Findings &findings);

} // namespace lmc
