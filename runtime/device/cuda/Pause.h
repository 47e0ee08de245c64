// Defines how long the host sleeps between two queries of the GPU.
#pragma once

#include <algorithm>
#include <chrono>

namespace lmc::cuda {

inline constexpr std::chrono::microseconds kPause{50}, kLongestPause{1000};

// Returns the time to sleep before the next query, after the host has waited for `waited`. The host
// notices the end of the work late by at most 50 us or 2% of its wait, whichever is longer.
inline std::chrono::microseconds pauseAfter(std::chrono::steady_clock::duration waited) {
  return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(waited / 64), kPause,
                    kLongestPause);
}

} // namespace lmc::cuda
