// Finds when a run must have ended, and whether another step and a save fit before that time.
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

// The environment variable in which a parent that restarts a run (Supervise.h) passes the limit of
// all starts together: textOf(limit), which is TimeLimit::end, a space and TimeLimit::source.
inline constexpr const char *kTimeLimitVariable = "LMC_TIME_LIMIT";
std::string textOf(const TimeLimit &limit);

// Returns the seconds of a duration: "3.5" (hours), or numbers with the units d, h, m and s, as in
// "1d12h", "3h50m" and "90s". A duration is longer than 0, and at most 10 years.
Result<double> parseDuration(std::string_view text);

// Returns the seconds since 1970-01-01 00:00 UTC of a point in time: such seconds as a number, or
// ISO 8601 as in "2026-11-22T13:40", "2026-11-22 13:40:02", "2026-11-22T13:40:02Z" and
// "2026-11-22T13:40+02:00". A time without a zone is local.
// A time is before the year 2200.
Result<double> parseTime(const std::string &text);

// Returns the earliest of the limits that are given. `maxHours` and `deadline` are the values of
// --max-hours and --deadline, or "". `began` is the time at which the run began. Without --deadline
// the end of the Slurm job counts (SLURM_JOB_END_TIME, seconds;
// https://slurm.schedmd.com/sbatch.html); --deadline=none ignores it. If kTimeLimitVariable has a
// limit, that one counts alone. An Error names the option that is wrong or already over.
Result<std::optional<TimeLimit>> findTimeLimit(const std::string &maxHours,
                                               const std::string &deadline,
                                               const Environment &environment, double began);

// Returns the estimated seconds of a save before the first one is measured: those of the longest of
// the latest saves that events.jsonl in `folder` lists. If it lists none: the `bytes` of a
// checkpoint divided by 100 MB/s, the speed of a hard disk or of a file server behind a gigabit
// network.
double expectedSaveSeconds(uint64_t bytes, const std::string &folder);

// Decides whether the next step must be left out, so that the run has saved and ended before its
// limit. All times are in seconds.
//
// A step may begin if this sum fits before the limit, with the longest of the latest kLatestSteps
// steps and of the latest kLatestSaves saves:
//
//   (1 + steps that are enqueued) x step + work beside steps + 2 x save + kEnd
class TimeBudget {
public:
  static constexpr size_t kLatestSteps = 20, kLatestSaves = 5;
  static constexpr double kEnd = 1; // seconds between a save and the end of the process

  // `clock` returns the time as TimeLimit::end counts it.
  explicit TimeBudget(std::optional<TimeLimit> limit, std::function<double()> clock = unixSeconds)
      : limit(std::move(limit)), clock(std::move(clock)) {}

  // Set the estimated seconds of a save and of a step, which count until one was measured.
  void expectSave(double seconds) { expectedSave = seconds; }
  void expectStep(double seconds) { expectedStep = seconds; }

  void stepped(double seconds);
  void saved(double seconds);

  // Returns true if the next step must not begin. `enqueued` is the number of steps that the device
  // has not completed, `besides` the estimated time of validations and exports after the next step.
  bool mustLeave(size_t enqueued, double besides) const;
  // Returns true if only a save still fits, so that a validation must stop. `besides` is the
  // estimated time of what is being written already.
  bool mustSave(double besides = 0) const;

  // Returns the seconds that a step with nothing beside it needs before the limit.
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
