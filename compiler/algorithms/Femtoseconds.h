// Durations as whole femtoseconds. Integers add exactly, so sums of the same terms are equal in any
// order; sums of doubles are not. No clock or cost model resolves a femtosecond, and an hour
// (3.6e18 fs) fits an int64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lmc {

// The longest sum of durations that the planning problems accept.
constexpr double kMostPlannedSeconds = 3600;

// Converts `seconds` in [0, kMostPlannedSeconds]. A positive duration becomes at least 1 fs.
inline int64_t toFemtoseconds(double seconds) {
  return seconds > 0 ? std::max<int64_t>(1, std::llround(seconds * 1e15)) : 0;
}

inline double toSeconds(int64_t femtoseconds) { return double(femtoseconds) / 1e15; }

} // namespace lmc
