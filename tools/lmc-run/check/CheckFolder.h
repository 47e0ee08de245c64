// Checks a run's folder before the first step. It changes no file of the run: it makes a file of
// its own and removes it again, together with the files of checks that were killed.
#pragma once

#include "runtime/watch/Findings.h"

#include <optional>
#include <string>

namespace lmc {

// Returns `out` or, if it does not exist, the nearest folder above it that does: it lies on the
// file system of OUT, even if OUT does not exist yet.
std::string placeOf(const std::string &out);

// The beginning of the names of files that a check writes, and removes again, in placeOf(OUT).
inline constexpr const char *kScratchPrefix = ".lmc-check-";

// Checks that files can be written in placeOf(out) and that no other run has the lock of `out`.
// Removes the files of checks that were killed ten minutes ago or earlier.
void checkFolder(const std::string &out, Findings &findings);

// Reads the newest checkpoint of `out` and, if the run is to start from another one, `start`, and
// compares every byte with the recorded checksums.
void checkCheckpoints(const std::string &out, const std::optional<std::string> &start,
                      Findings &findings);

} // namespace lmc
