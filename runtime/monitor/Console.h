// Progress for the person who watches: a live line on a terminal, plain lines
// at intervals in a log.
#pragma once

#include "runtime/monitor/Metrics.h"

#include <cstdio>
#include <string>

namespace lmc {

// "1.50 GiB", binary units.
std::string formatBytes(uint64_t bytes);
// "1:02:03", or "2d 03:04:05" from a day on.
std::string formatDuration(double seconds);

class Console {
public:
  // Progress goes to `out` (live where that is a terminal), warnings to `err`.
  Console(FILE *out, FILE *err, int64_t logInterval, int64_t totalSteps);
  ~Console();

  // A line that stays.
  void note(const std::string &line);
  // "warning: LINE", on the error stream.
  void warning(const std::string &line);
  // After every step. A log gets a line every logInterval steps, at the first
  // step, the last one, and when there is a validation loss.
  void step(const StepRecord &record);

private:
  std::string progressLine(const StepRecord &record) const;
  void clearLive();

  FILE *out, *err;
  bool live;              // `out` is a terminal
  bool lineShown = false; // a live line stands without a newline
  int64_t logInterval, totalSteps;
  int64_t shownSteps = 0;     // calls of step()
  double smoothedSeconds = 0; // per step, exponential average
  double smoothedRate = 0;    // tokens per second
};

} // namespace lmc
