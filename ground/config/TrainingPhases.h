// The phases of a run, [[phase]]: the number of steps of each, and the job in one of them.
#pragma once

#include "ground/config/Checks.h"

namespace lmc::config {

// Sets the steps of each phase, the values that a phase takes from [training], and
// training.trainIters if the user did not give it. Reports wrong phases. `job` must be the job of
// `config`.
void resolveSteps(const CheckedJob &job, Provenance &provenance, Config &config);

// Puts the batch sizes of the phase `config.phase` in the place of those of [training], and the
// maximum of all sequence lengths in the place of its length, because defaults that derive from the
// length must suffice for all phases. Does nothing if there are no phases.
void enterPhase(Provenance &provenance, Config &config);

// Sets the phase's own sequence length; must run after deriveDefaults. The default of
// data.shuffle_block becomes the least common multiple of the sequence lengths of all phases.
void settlePhase(const Provenance &provenance, Config &config);

// Reports keys of phases that contradict each other or other keys.
void checkPhases(const CheckedJob &job);

} // namespace lmc::config
