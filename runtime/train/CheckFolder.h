// The check of a run's folder before the first step. It changes nothing there.
#pragma once

#include "runtime/train/Findings.h"

#include <optional>
#include <string>

namespace lmc {

// Returns `out` or, if it does not exist, the nearest folder above it that does: a name in it is on
// the file system that OUT is or will be on.
std::string placeOf(const std::string &out);

// Beginning of the names of what a check writes, and removes again, in placeOf(OUT).
inline constexpr const char *kScratchPrefix = ".lmc-check-";

// Checks that files can be written in `out` and that no other run has its lock, and removes what
// checks that were killed have left there.
void checkFolder(const std::string &out, Findings &findings);

// Reads the newest checkpoint of `out` and, if the run is to start from another one, `start`, and
// compares every byte with the recorded checksums.
void checkCheckpoints(const std::string &out, const std::optional<std::string> &start,
                      Findings &findings);

} // namespace lmc
