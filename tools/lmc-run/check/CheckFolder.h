// Checks a run's folder before the first step. Changes no file of the run: it only makes and
// removes a file of its own, and removes files of checks that were killed.
#pragma once

#include "runtime/watch/Findings.h"

#include <optional>
#include <string>

namespace lmc {

// The prefix of the names of files that a check writes, and later removes, in nearestFolder(OUT).
inline constexpr const char *kScratchPrefix = ".lmc-check-";

// Checks that files can be written in nearestFolder(out), and that no other run has the lock of
// `out`. Removes the files of checks that were killed at least ten minutes ago.
void checkFolder(const std::string &out, Findings &findings);

// Verifies the recorded checksums of the newest checkpoint of `out` and, if it is set, of the
// checkpoint `start`, from which the run will start instead.
void checkCheckpoints(const std::string &out, const std::optional<std::string> &start,
                      Findings &findings);

} // namespace lmc
