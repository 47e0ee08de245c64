// The phases of a run, [[phase]]: how many steps each has, and the job as it is in one of them.
#pragma once

#include "ground/config/Checks.h"

namespace lmc::config {

// Sets the steps of each phase, the values that a phase takes from [training], and
// training.trainIters if the user did not give it. `job` is of `config`. Reports wrong phases.
void resolveSteps(const CheckedJob &job, Provenance &provenance, Config &config);

// Puts the batch of the phase `config.phase` in the place of that of [training], and the longest
// sequence of all phases in the place of its length: defaults that follow the length must suffice
// for all phases. Does nothing if there are no phases.
void enterPhase(Provenance &provenance, Config &config);

// Sets the phase's own sequence length, after the defaults were derived. The default of
// data.shuffle_block becomes the smallest length that holds whole sequences of each phase.
void settlePhase(const Provenance &provenance, Config &config);

// Reports keys of phases that contradict each other or other keys.
void checkPhases(const CheckedJob &job);

} // namespace lmc::config
