// Predicts what a job would need and how fast it would be, by compiling it without code.
#pragma once

#include "compiler/driver/Compile.h"

#include "plan_generated.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace lmc {

struct Forecast {
  bool fits = false;
  uint64_t peakBytes = 0; // of the plan; if none fits, of the smallest plan
  uint64_t budgetBytes = 0;
  double stepSeconds = 0;   // of an optimizer step
  double tokensPerSecond = 0; // of one device
  double mfuCausal = 0;
  double exposedSeconds = 0; // seconds per step of communication that nothing hides
  // True if the job is certain to be slower than ForecastJob::leastRate. Nothing else is known of
  // it then: the figures are those of a plan that is at least as fast as the job's.
  bool isTooSlow = false;
};

// Chunks of the loss, in tokens, for forecasts that do not search for one; 0: none is known.
struct KnownChunks {
  int64_t fastest = 0, smallest = 0;
};

// Returns the chunks that the compile of a plan compared; none if the job names its chunk.
KnownChunks knownChunks(const plan::Plan &plan);

struct ForecastJob {
  Config config;
  // If true, the forecast need only be within 1% of the compiled plan's (Forecast.cpp has the
  // method), and takes a third of the time.
  bool isQuick = false;
  KnownChunks chunks; // the chunks that a quick forecast may use
  // If true, the first plan that is tried is the one with the fewest bytes. This changes only the
  // order of what is tried.
  bool isLikelyTooLarge = false;
  // The rate, in tokens/s of one device, below which the forecast need not say more than that the
  // job is too slow (Forecast::isTooSlow). 0: every rate is of interest.
  double leastRate = 0;
};

// Returns true if the state alone of `config`, a job that differs from `own` in nothing but its
// ranks, likely takes more than the budget. `plan` is that of `own`.
bool isLikelyTooLarge(const Config &config, const Config &own, const plan::Plan &plan);

// Returns the forecast of a job that was compiled. `plan` is that of `result`.
Forecast forecastOf(const plan::Plan &plan, const CompileResult &result, const Config &config);

// Returns one forecast for each job, or the first error. Jobs are compiled at the same time, on the
// threads of this machine.
llvm::Expected<std::vector<Forecast>> forecast(llvm::ArrayRef<ForecastJob> jobs,
                                               const CompileOptions &options);

} // namespace lmc
