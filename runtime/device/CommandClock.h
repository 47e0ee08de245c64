// Measures the times of commands that the host itself runs.
#pragma once

#include "runtime/device/Device.h"

#include <chrono>
#include <utility>

namespace lmc {

class CommandClock {
public:
  // Must be called at the end of each command, before the next one begins.
  void ended() {
    const double now =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double before = times.empty() ? 0 : times.back().start + times.back().seconds;
    times.push_back({before, now - before});
  }
  // Sets the times of an async collective, after ended() has been called for all commands.
  void ran(size_t command, std::chrono::steady_clock::time_point begin,
           std::chrono::steady_clock::time_point end) {
    times[command] = {std::chrono::duration<double>(begin - start).count(),
                      std::chrono::duration<double>(end - begin).count()};
  }
  std::vector<CommandTime> take() { return std::move(times); }

private:
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<CommandTime> times;
};

} // namespace lmc
