// Durations as whole femtoseconds: integers add exactly, so equal sums are equal in
// whatever order their terms come, which sums of doubles are not. A femtosecond is
// far below what any clock or cost model tells apart, and an hour of them (3.6e18)
// fits an int64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lmc {

// The longest sum of durations that the planning problems accept.
constexpr double kMostPlannedSeconds = 3600;

// `seconds` in [0, kMostPlannedSeconds]. What takes any time takes at least one.
inline int64_t toFemtoseconds(double seconds) {
  return seconds > 0 ? std::max<int64_t>(1, std::llround(seconds * 1e15)) : 0;
}

inline double toSeconds(int64_t femtoseconds) { return double(femtoseconds) / 1e15; }

} // namespace lmc
