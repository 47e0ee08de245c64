// The phases of a run with their sessions, and the training data that they read.
#pragma once

#include "runtime/step/Session.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lmc {

struct PhaseData {
  RunPhase phase;
  std::unique_ptr<Session> session;
  std::shared_ptr<DataSource> data; // shared by phases with equal sources and sequence lengths

  uint64_t batchSize() const;
  uint64_t tokensPerStep() const;
};

// Returns true if the phases read the same sources with the same weights.
bool readsSameStream(const TrainSettings &a, const TrainSettings &b);

// A part of the training data: what the run still has to read in one of its phases (a "leg").
struct DataLeg {
  size_t phase = 0;
  uint64_t firstStep = 0, lastStep = 0; // the steps (firstStep, lastStep]
  std::vector<uint64_t> starts;         // number of tokens that the stream skips, per source
  uint64_t begin = 0, end = 0;          // the leg is the tokens [begin, end) of the stream
};

// Returns the legs after `progress`, one per phase, from phase number `current` on. The stream of
// this phase begins at `starts`. A later phase continues the previous phase's stream if both have
// the same sources. Else its stream begins with each source's first unread token.
std::vector<DataLeg> legsOf(const std::vector<PhaseData> &phases, size_t current,
                            const CheckpointState &progress, std::vector<uint64_t> starts);

// Returns an error, with remedies, if a run reads a source more often than its max_epochs.
Result<void> checkEpochs(const std::vector<PhaseData> &phases, const std::vector<DataLeg> &legs);

// Returns an error if one step reads more sequences than a source has. If the settings allow this
// (data.allow_repeats), adds a warning instead.
Result<void> checkRepeats(const std::vector<PhaseData> &phases, std::vector<std::string> &warnings);

// Returns lines about the data and the job: "job: 50 steps, 2500 tokens, 20.0 per parameter".
std::vector<std::string> jobFacts(const std::vector<PhaseData> &phases,
                                  const std::vector<DataLeg> &legs, uint64_t totalSteps);

} // namespace lmc
