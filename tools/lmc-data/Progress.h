// Reports the progress of a long read on stderr. A terminal shows one line that changes. A log gets
// a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lmc {

class Progress {
public:
  // `total` is the number of bytes to read, or 0 if this number is not known.
  Progress(std::string task, uint64_t total);
  // Erases the line on a terminal.
  ~Progress();
  void advance(uint64_t bytes);

private:
  using Clock = std::chrono::steady_clock;
  std::string task;
  uint64_t total, done = 0;
  bool terminal, shown = false;
  Clock::time_point start, next;
};

} // namespace lmc
