#include "tools/lmc-data/Progress.h"

#include <fmt/format.h>

#include <cstdio>
#include <unistd.h>

namespace lmc {

static constexpr std::chrono::milliseconds kTerminalInterval(500), kLogInterval(10000);
static constexpr double kMiB = 1 << 20;

Progress::Progress(std::string task, uint64_t total)
    : task(std::move(task)), total(total), terminal(isatty(STDERR_FILENO)), start(Clock::now()),
      next(start + (terminal ? kTerminalInterval : kLogInterval)) {}

Progress::~Progress() {
  if (shown && terminal)
    std::fputs("\r\033[K", stderr);
}

void Progress::advance(uint64_t bytes) {
  done += bytes;
  Clock::time_point now = Clock::now();
  if (now < next)
    return;
  next = now + (terminal ? kTerminalInterval : kLogInterval);
  shown = true;
  double seconds = std::chrono::duration<double>(now - start).count();
  std::string line = fmt::format("{}: {:.0f} MiB", task, done / kMiB);
  if (total > 0)
    line += fmt::format(" of {:.0f} MiB, {:.0f} %, {:.0f} s left", total / kMiB,
                        100.0 * done / total, seconds * (double(total) / done - 1));
  line += fmt::format(", {:.0f} MiB/s", done / kMiB / seconds);
  std::fputs(terminal ? ("\r" + line + "\033[K").c_str() : (line + "\n").c_str(), stderr);
}

} // namespace lmc
