// Converts durations to whole femtoseconds (1e-15 s). Integers add exactly, so a sum does not
// depend on the order of addition. An hour (3.6e18 fs) fits an int64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lmc {

// The maximum sum, in seconds, of all durations in one recomputation problem.
constexpr double kMaxPlannedSeconds = 3600;

// Converts `seconds`, from 0 to kMaxPlannedSeconds. A positive duration becomes at least 1 fs.
inline int64_t toFemtoseconds(double seconds) {
  return seconds > 0 ? std::max<int64_t>(1, std::llround(seconds * 1e15)) : 0;
}

inline double toSeconds(int64_t femtoseconds) { return double(femtoseconds) / 1e15; }

} // namespace lmc
