// Finds a plateau: a loss that no longer falls. It may begin at any time of a run.
//
// Losses follow a power law (arXiv 2001.08361): each doubling of the number of steps lowers the
// loss by about the same fraction. Let `latest` be the mean loss of the latest eighth of the steps,
// and `before` the mean loss of the eighth before. A plateau begins when the loss has fallen by
// less than `fall` times `latest`, even with a margin of three standard errors s:
//
//   before - latest + 3 s < fall * latest
//   s^2 = var(before) / n(before) + var(latest) / n(latest)
//
// The plateau ends when before - latest > 5 s and before - latest >= fall * latest.
//
// Only the mean and the variance of each block of consecutive steps are kept. A block has 64 steps
// at first. When there are 32 blocks, neighbours are merged in pairs, and the length doubles. From
// 16 blocks on, the loss is judged at the end of each block.
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
  int64_t steps = 0;             // number of steps whose mean loss is `latest`
};

// Records the loss of a step. Returns a plateau once, when it begins.
std::optional<Plateau> observePlateau(PlateauState &state, double loss, double fall);

} // namespace lmc
