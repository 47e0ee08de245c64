// The check of a run's folder before the first step. It changes no file of the run: it makes a file
// of its own and removes it again, and what checks that were killed have left.
#pragma once

#include "runtime/watch/Findings.h"

#include <optional>
#include <string>

namespace lmc {

// Returns `out` or, if it does not exist, the nearest folder above it that does: a name in it is on
// the file system that OUT is or will be on.
std::string placeOf(const std::string &out);

// Beginning of the names of what a check writes, and removes again, in placeOf(OUT).
inline constexpr const char *kScratchPrefix = ".lmc-check-";

// Checks that files can be written in placeOf(out) and that no other run has the lock of `out`, and
// removes what checks that were killed have left there, ten minutes later or more.
void checkFolder(const std::string &out, Findings &findings);

// Reads the newest checkpoint of `out` and, if the run is to start from another one, `start`, and
// compares every byte with the recorded checksums.
void checkCheckpoints(const std::string &out, const std::optional<std::string> &start,
                      Findings &findings);

} // namespace lmc
