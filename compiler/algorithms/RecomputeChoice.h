// Which of its options each layer takes.
//
// Layer l of L keeps kept(l) bytes from its forward to its backward pass. The
// backward pass goes from the last layer to the first; at layer l everything
// kept by layers 0..l is held and `transientBytes` of its option on top. Before
// it stands the turn (head and loss), with everything of all layers held. So
//
//   peak = fixedBytes + max( turnBytes + sum of all kept,
//                            max over l of transient(l) + sum of kept(0..l) )
//
// and the problem is to choose options with the least sum of seconds whose peak
// is within a budget; equal seconds: the lower peak, then the lexicographically
// smallest list of options. Exact: layers are decided in order, and of two partial
// choices that hold as much the faster dominates; bounds from the continuous
// relaxation cut the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct LayerOption {
  uint64_t keptBytes = 0;
  uint64_t transientBytes = 0;
  double seconds = 0;
};

struct RecomputeChoiceProblem {
  std::vector<std::vector<LayerOption>> kinds; // options of each kind of layer
  std::vector<int> layers;                     // the kind of each layer, first to last
  uint64_t fixedBytes = 0;                     // state, and what is always there
  uint64_t turnBytes = 0;

  // Empty when the problem is well formed, else what is wrong with it.
  std::string check() const;
};

struct RecomputeChoice {
  std::vector<int> options; // per layer, an index into its kind's options
  uint64_t peakBytes = 0;
  double seconds = 0;

  // Empty when the options exist and the sums are right, else the fault.
  std::string verify(const RecomputeChoiceProblem &problem) const;
};

// The fastest choice within `budget` bytes; none when no choice fits.
std::optional<RecomputeChoice> chooseRecompute(const RecomputeChoiceProblem &problem,
                                               uint64_t budget);

// Choices from the fastest of all to the one with the smallest peak: chooseRecompute at
// the budgets given and at `steps` more, equally far apart, without repetitions. Seconds
// rise and peaks fall strictly along the list.
std::vector<RecomputeChoice> recomputeLadder(const RecomputeChoiceProblem &problem, int steps,
                                             const std::vector<uint64_t> &budgets);

} // namespace lmc
