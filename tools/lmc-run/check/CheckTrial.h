// The three training steps of lmc-run --check.
#pragma once

#include "runtime/loop/Run.h"
#include "runtime/watch/Findings.h"

#include <cstdint>
#include <map>
#include <string>

namespace lmc {

// The measurements of a trial, on rank 0. The number 0 means "not measured".
struct TrialFigures {
  uint64_t steps = 0;
  double stepSeconds = 0; // mean over all steps but the first, which is a warm-up
  double saveSeconds = 0;
  uint64_t saveBytes = 0;
  double exportSeconds = 0;
  std::map<std::string, double> validationSeconds; // seconds of one global batch, by data set
};

// The results of one of the trial's two trainings.
struct TrialOutcome {
  // steps[n][name] is the loss, gradient norm or update ratio `name` of step n, as text of JSON.
  std::map<uint64_t, std::map<std::string, std::string>> steps;
  std::map<std::string, uint64_t> state; // XXH64 of each file of the last checkpoint, by name
};

// Returns a text about the differences between two outcomes; "": they are equal.
std::string differenceOf(const TrialOutcome &straight, const TrialOutcome &resumed);

// Trains the three steps after `start` (or all that are left) in a scratch folder in `place`. Then
// trains them again, with a save and a resume before the last step. Adds differences and other
// problems to `findings`. The overrides of `start` must limit each validation to one global batch.
// All ranks must call it. Returns Success, or Interrupted after a signal. Error: a rank was lost.
Result<ExitCode> runTrial(const std::string &place, const StartFacts &start, bool exports,
                          const Run &run, Findings &findings, TrialFigures &figures);

} // namespace lmc
