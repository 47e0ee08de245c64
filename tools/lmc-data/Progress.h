// How far a long reading has come, on stderr: a live line on a terminal, a line
// every ten seconds in a log. Short work shows nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lmc {

class Progress {
public:
  // `total` bytes are to be read; 0 when that is not known.
  Progress(std::string task, uint64_t total);
  // Clears the live line.
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
