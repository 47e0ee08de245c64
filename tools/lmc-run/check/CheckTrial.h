// The three training steps of lmc-run --check.
#pragma once

#include "runtime/loop/Run.h"
#include "runtime/watch/Findings.h"

#include <cstdint>
#include <map>
#include <string>

namespace lmc {

// What was measured in a trial, on rank 0. 0: it was not.
struct TrialFigures {
  uint64_t steps = 0;
  double stepSeconds = 0; // mean of the steps after the first, which also warms up
  double saveSeconds = 0;
  uint64_t saveBytes = 0;
  double exportSeconds = 0;
  std::map<std::string, double> validationSeconds; // by name of the set: of one global batch
};

// What a run of the trial left.
struct TrialOutcome {
  // The loss and the norms of each step, as metrics.jsonl has them, by step and name.
  std::map<uint64_t, std::map<std::string, std::string>> steps;
  std::map<std::string, uint64_t> state; // XXH64 of each file of the last checkpoint, by name
};

// Returns how the losses, norms or states differ; "": not at all.
std::string differenceOf(const TrialOutcome &straight, const TrialOutcome &resumed);

// Trains three steps from `start` (fewer if the run has no more) in a scratch folder in `place`,
// and again with a save and a resume before the last one. The overrides of `start` must let each
// validation take one global batch. Adds to `findings` what goes wrong, and an Error if the two
// differ. Removes the scratch folder. All ranks call it together. Returns Success, or Interrupted
// after a signal. Error: a rank was lost.
Result<ExitCode> runTrial(const std::string &place, const StartFacts &start, bool exports,
                          const Run &run, Findings &findings, TrialFigures &figures);

} // namespace lmc
