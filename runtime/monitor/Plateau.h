// Finds a loss that no longer falls, at any time of a run.
//
// By a power law (arXiv 2001.08361), a loss falls by about the same part in each doubling of the
// number of steps. So the mean of the latest eighth of the steps is compared with that of the
// eighth before it. The loss has a plateau if its fall is certainly smaller than `fall` times the
// loss:
//
//   before - latest + 3 s < fall * latest
//   s^2 = var(before) / n(before) + var(latest) / n(latest)
//
// The plateau ends when before - latest > 5 s and before - latest >= fall * latest.
//
// The losses are kept as means and variances of at most 32 blocks of equal numbers of steps, at
// first 64. When there are 32, every two neighbours become one. The loss is judged at the end of a
// block, from 16 blocks on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lmc {

struct PlateauState {
  struct Block {
    int64_t count = 0;            // number of steps
    double mean = 0, squares = 0; // mean of the losses; sum of squared differences from the mean
  };
  std::vector<Block> blocks; // the last block may be incomplete
  int64_t length = 64;       // number of steps of a whole block
  bool reported = false;     // true while the reported plateau lasts
};

struct Plateau {
  double before = 0, latest = 0; // mean losses
  int64_t steps = 0;             // number of steps of the latest mean
};

// Records the loss of a step. Returns a plateau once, when it begins.
std::optional<Plateau> observePlateau(PlateauState &state, double loss, double fall);

} // namespace lmc
