// Shows progress: on a terminal, one line that is updated in place; in a log, lines at intervals.
#pragma once

#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/RunLog.h"

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace lmc {

// Formats seconds as "1:02:03", or as "2d 03:04:05" if they are a day or more.
std::string formatDuration(double seconds);

// Any thread may call note() and warning().
class Console {
public:
  // Writes progress to `out` (in place if `out` is a terminal) and warnings to `err`.
  Console(FILE *out, FILE *err);
  ~Console();

  // From now on also writes all lines to `log`, which must outlive this object.
  void record(RunLog *log);

  // Prints a line that stays on the screen.
  void note(const std::string &line);
  // Prints "warning: LINE" to the error stream.
  void warning(const std::string &line);
  // The next two functions call note() or warning() for each line.
  void notes(const std::vector<std::string> &lines);
  void warnings(const std::vector<std::string> &lines);
  // Sets the number of steps between two lines in a log, and the last step. Must precede step().
  void setSteps(int64_t logInterval, int64_t totalSteps);
  // Shows a step. A log gets a line for every logInterval-th step, for the first and the last step,
  // and for steps with a validation.
  void step(const StepRecord &record);

private:
  std::string progressLine(const StepRecord &record) const;
  void clearLive();
  void print(const std::string &line);

  // Protects the members below. A thread that holds this lock must not call functions of the log.
  std::mutex mutex;
  FILE *out, *err;
  RunLog *log = nullptr;
  bool live;              // true if `out` is a terminal
  bool lineShown = false; // true if the last printed line still lacks its newline
  int64_t logInterval = 1, totalSteps = 0;
  int64_t shownSteps = 0;     // number of calls of step()
  double smoothedSeconds = 0; // seconds per step, exponential average
  double smoothedRate = 0;    // tokens per second, exponential average
};

} // namespace lmc
