// The clock by which monitors wait before they retry what has failed. Tests replace it.
#pragma once

#include <chrono>
#include <functional>

namespace lmc {

using MonitorClock = std::function<std::chrono::steady_clock::time_point()>;

// The time that a monitor waits after a failure before it tries again.
inline constexpr std::chrono::seconds kMonitorPause(60);

inline std::chrono::steady_clock::time_point monitorTime() {
  return std::chrono::steady_clock::now();
}

} // namespace lmc
