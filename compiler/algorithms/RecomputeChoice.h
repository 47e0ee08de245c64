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
// is within a budget; equal seconds: the lower peak. Among equals of both any is taken,
// always the same. Seconds count in whole femtoseconds (Femtoseconds.h).
//
// Layers are decided from the last to the first; of two partial choices that need as
// much the faster dominates, and bounds from the continuous relaxation cut the rest: a
// multiple-choice knapsack by labels (Kellerer, Pferschy and Pisinger, "Knapsack
// Problems", 2004, chapter 11). Exact unless thousands of undominated partial choices
// remain, as when every option costs nearly the same per byte; then the most promising
// go on, and the choice carries a bound.
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

  // Empty when the problem is well formed, else what is wrong with it. All bytes together,
  // with the largest of each layer, are below 2^61; the slowest choice takes an hour at most.
  std::string check() const;
};

struct RecomputeChoice {
  std::vector<int> options; // per layer, an index into its kind's options
  uint64_t peakBytes = 0;
  double seconds = 0;
  // No choice within the budget takes less; equal to `seconds` when this is the fastest.
  double boundSeconds = 0;

  // Empty when the options exist, the sums are right and the bound is one, else the fault.
  std::string verify(const RecomputeChoiceProblem &problem) const;
};

// The fastest choice within `budget` bytes; none when no choice fits. Layers of a kind take
// their options in order of falling transients where that is no worse, so that equal layers
// stand in runs.
std::optional<RecomputeChoice> chooseRecompute(const RecomputeChoiceProblem &problem,
                                               uint64_t budget);

// Choices from the fastest of all to the one with the smallest peak: chooseRecompute at the
// budgets given and at `steps` more between these two, equally far apart. Seconds rise and
// peaks fall strictly along the list; budgets too small for any choice are passed over.
std::vector<RecomputeChoice> recomputeLadder(const RecomputeChoiceProblem &problem, int steps,
                                             const std::vector<uint64_t> &budgets);

} // namespace lmc
