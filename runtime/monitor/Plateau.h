// Finds a loss that does not fall any more, at any time of a run.
//
// The fall of a loss slows down with the steps t that are done: by a power law (arXiv 2001.08361),
// it falls by about the same part in each doubling of t. So windows grow with t: the mean of the
// latest eighth of the steps is compared with that of the eighth before it. The loss has a plateau
// if its fall between the two is certainly smaller than `fall` times the loss: if
//
//   before - latest + 3 s < fall * latest
//   s^2 = var(before) / n(before) + var(latest) / n(latest)
//
// so that a loss of which noise hides the fall is no plateau. It is over when the loss has fallen
// by more than 5 s and by at least that part of it.
//
// The losses are kept as means and variances of at most 32 blocks of equal numbers of steps. When
// all 32 are full, two neighbours become one. The loss is judged at the end of a block, from 16
// blocks on. The first blocks have 64 steps, and so the first judgement comes at step 1024.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lmc {

struct PlateauState {
  struct Block {
    int64_t count = 0;            // of steps
    double mean = 0, squares = 0; // mean of the losses; sum of squared differences from the mean
  };
  std::vector<Block> blocks; // the last block may be incomplete
  int64_t length = 64;       // steps of a whole block
  bool reported = false;     // true while the reported plateau lasts
};

struct Plateau {
  double before = 0, latest = 0; // mean losses
  int64_t steps = 0;             // of the later mean
};

// Records the loss of a step. Returns a plateau once, when it begins. `fall` is a share of the
// loss.
std::optional<Plateau> observePlateau(PlateauState &state, double loss, double fall);

} // namespace lmc
