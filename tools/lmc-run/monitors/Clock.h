// The time by which monitors try again what has failed. Tests bring their own.
#pragma once

#include <chrono>
#include <functional>

namespace lmc {

using MonitorClock = std::function<std::chrono::steady_clock::time_point()>;

// After a failure, a monitor waits so long before it tries again.
inline constexpr std::chrono::seconds kMonitorPause(60);

inline std::chrono::steady_clock::time_point monitorTime() {
  return std::chrono::steady_clock::now();
}

} // namespace lmc
