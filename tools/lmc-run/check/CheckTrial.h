// The three training steps of lmc-run --check.
#pragma once

#include "runtime/loop/Run.h"
#include "runtime/watch/Findings.h"

#include <cstdint>
#include <map>
#include <string>

namespace lmc {

// The measurements of a trial, on rank 0. A number of 0 stands for "not measured".
struct TrialFigures {
  uint64_t steps = 0;
  double stepSeconds = 0; // mean over all steps but the first, which is a warm-up
  double saveSeconds = 0;
  uint64_t saveBytes = 0;
  double exportSeconds = 0;
  std::map<std::string, double> validationSeconds; // seconds of one global batch, by data set
};

// The results that a run of the trial left.
struct TrialOutcome {
  // The loss and the norms of each step, as metrics.jsonl has them, by step and name.
  std::map<uint64_t, std::map<std::string, std::string>> steps;
  std::map<std::string, uint64_t> state; // XXH64 of each file of the last checkpoint, by name
};

// Returns a text on how the losses, norms or states of two outcomes differ; "": they are equal.
std::string differenceOf(const TrialOutcome &straight, const TrialOutcome &resumed);

// Trains the three steps after `start` (fewer if the run has fewer left) in a scratch folder in
// `place`, and then trains them again with a save and a resume before the last step. Adds faults to
// `findings`, and an Error if the results of the two trainings differ. Removes the scratch folder.
// The overrides of `start` must limit each validation to one global batch. All ranks must call
// runTrial() together. Returns Success or, after a signal, Interrupted. Error: a rank was lost.
Result<ExitCode> runTrial(const std::string &place, const StartFacts &start, bool exports,
                          const Run &run, Findings &findings, TrialFigures &figures);

} // namespace lmc
