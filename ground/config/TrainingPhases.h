// The phases of a run ([[phase]]): computes their numbers of steps, and makes a phase's job.
#pragma once

#include "ground/config/Checks.h"

namespace lmc::config {

// Sets the number of steps of each phase, the values that a phase takes from [training], and
// training.trainIters if it was not given. `job.config` must refer to `config`.
void resolveSteps(const CheckedJob &job, Provenance &provenance, Config &config);

// Puts the batch sizes of the phase `config.phase` into [training]. Sets training.sequence_length
// to the maximum of all phases, so that defaults derived from it are large enough for all phases.
void enterPhase(Provenance &provenance, Config &config);

// Puts the phase's sequence length into [training]. deriveDefaults() must run before. The default
// of data.shuffle_block becomes the least common multiple of the sequence lengths of all phases.
void settlePhase(const Provenance &provenance, Config &config);

// Reports keys of phases that contradict each other or other keys.
void checkPhases(const CheckedJob &job);

} // namespace lmc::config
