// Predicts the memory and the speed of a job by compiling it without code.
#pragma once

#include "compiler/driver/Compile.h"

#include "plan_generated.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace lmc {

struct Forecast {
  bool fits = false;
  uint64_t peakBytes = 0; // peak of the plan; if no plan fits, of the smallest plan
  uint64_t budgetBytes = 0;
  double stepSeconds = 0;     // seconds of an optimizer step
  double tokensPerSecond = 0; // of one device
  double mfuCausal = 0;
  double exposedSeconds = 0; // seconds per step in which the device waits for communication
  // True if the job is certainly slower than ForecastJob::leastRate. The other fields then describe
  // a plan that is at least as fast as the job's plan.
  bool isTooSlow = false;
};

// Chunks of the loss, in tokens, of the fastest and of the smallest plan; 0: unknown.
struct KnownChunks {
  int64_t fastest = 0, smallest = 0;
};

// Returns the loss chunks that the compiler compared for a plan; none if the job sets its chunk.
KnownChunks knownChunks(const plan::Plan &plan);

struct ForecastJob {
  Config config;
  // If true, makes a quick forecast (Forecast.cpp). It takes a third of the time of compiling the
  // job, and differs by at most 1% from the compiled plan.
  bool isQuick = false;
  KnownChunks chunks;            // the chunks of the loss that a quick forecast may use
  bool isLikelyTooLarge = false; // if true, the plan with the fewest bytes is tried first
  // A rate in tokens/s of one device. If the job is certainly slower, the forecast may end early
  // (Forecast::isTooSlow). 0: the forecast never ends early.
  double leastRate = 0;
};

// Returns true if the state of the job `config` alone likely exceeds the budget. Estimates it from
// `plan`, the plan of a job `own` that differs at most in ranks, sharding strategy and batch size.
bool isLikelyTooLarge(const Config &config, const Config &own, const plan::Plan &plan);

// Returns the forecast of a job that was compiled to `result`, whose plan is `plan`.
Forecast forecastOf(const plan::Plan &plan, const CompileResult &result, const Config &config);

// Returns one forecast for each job, or the first error. Uses all threads of this machine.
llvm::Expected<std::vector<Forecast>> forecast(llvm::ArrayRef<ForecastJob> jobs,
                                               const CompileOptions &options);

} // namespace lmc
