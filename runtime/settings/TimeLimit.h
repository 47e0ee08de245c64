// Finds the time by which a run must have ended, and whether another step and a save fit before it.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/LaunchEnvironment.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lmc {

struct TimeLimit {
  double end = 0;     // seconds since 1970-01-01 00:00 UTC
  std::string source; // "--max-hours=2", "--deadline=...", "SLURM_JOB_END_TIME"
};

// Returns the seconds since 1970-01-01 00:00 UTC.
double unixSeconds();

// The environment variable with the time limit of a restarted child process, as textOf() writes it.
inline constexpr const char *kTimeLimitVariable = "LMC_TIME_LIMIT";
std::string textOf(const TimeLimit &limit); // "END SOURCE"

// Returns the seconds of a duration: "3.5" (hours), "1d12h", "3h50m" or "90s": more than 0, and at
// most 10 years.
Result<double> parseDuration(std::string_view text);

// Returns a point in time in seconds since 1970-01-01 00:00 UTC. `text` is this number, or ISO 8601
// as in "2026-11-22T13:40" (local time), "2026-11-22 13:40:02Z" and "2026-11-22T13:40+02:00".
// Error: the time is in the year 2200 or later.
Result<double> parseTime(const std::string &text);

// Returns the earlier of two limits. One is `maxHours` (--max-hours; "": none) after `began`. The
// other is `deadline` (--deadline; "none": no limit at all) or, if that is empty,
// SLURM_JOB_END_TIME (in seconds; https://slurm.schedmd.com/sbatch.html). If kTimeLimitVariable is
// set, returns its limit instead. Error: an option is wrong, or its time has passed.
Result<std::optional<TimeLimit>> findTimeLimit(const std::string &maxHours,
                                               const std::string &deadline,
                                               const Environment &environment, double began);

// Estimates the seconds of a save before any was measured: the longest of the latest saves in
// events.jsonl in `folder`; without saves, `bytes` / (100 MB/s), the speed of a hard disk.
double expectedSaveSeconds(uint64_t bytes, const std::string &folder);

// Decides whether the run must stop before the next step, so that it can save and end before its
// limit. All times are in seconds.
//
// A step may begin if the time that is left is at least the sum below. `step` is the longest time
// of the latest kLatestSteps steps, and `save` the longest time of the latest kLatestSaves saves:
//
//   (1 + number of enqueued steps) x step + other work after these steps + 2 x save + kEnd
class TimeBudget {
public:
  static constexpr size_t kLatestSteps = 20, kLatestSaves = 5;
  static constexpr double kEnd = 1; // seconds between a save and the end of the process

  // `clock` returns the time in the unit of TimeLimit::end.
  explicit TimeBudget(std::optional<TimeLimit> limit, std::function<double()> clock = unixSeconds)
      : limit(std::move(limit)), clock(std::move(clock)) {}

  // Set the estimated seconds of a save and of a step, which are used until one was measured.
  void expectSave(double seconds) { expectedSave = seconds; }
  void expectStep(double seconds) { expectedStep = seconds; }

  void stepped(double seconds);
  void saved(double seconds);

  // Returns true if no further step may begin. `enqueued` is the number of enqueued steps.
  // `besides` is the estimated time of other work after the steps, in seconds.
  bool mustLeave(size_t enqueued, double besides) const;
  // Returns true if a save must begin now. The background save needs `besides` more seconds.
  bool mustSave(double besides = 0) const;

  // Returns the seconds that must be left for a step to begin, if no other work follows it.
  double neededSeconds() const { return step() + 2 * save() + kEnd; }
  double step() const;
  double save() const;
  double secondsLeft() const { return limit->end - clock(); } // requires a limit
  const std::optional<TimeLimit> &what() const { return limit; }
  bool hasStepped() const { return !steps.empty(); }

private:
  std::optional<TimeLimit> limit;
  std::function<double()> clock;
  double expectedSave = 0, expectedStep = 0;
  std::deque<double> steps, saves; // seconds of the latest steps and saves
};

} // namespace lmc
