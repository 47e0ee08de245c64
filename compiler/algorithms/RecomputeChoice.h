// The choice of one recompute option for each layer.
//
// Layer l of L keeps kept(l) bytes from its forward to its backward pass. The backward pass goes
// from the last layer to the first: at layer l the bytes kept by layers 0..l are live, plus
// `transientBytes` of the layer's option. At the start of the backward pass (head and loss), the
// bytes kept by all layers are live, plus `turnBytes`. So
//
//   peak = fixedBytes + max( turnBytes + sum of all kept,
//                            max over l of transient(l) + sum of kept(0..l) )
//
// and the problem is to choose options with the least sum of seconds whose peak is within a budget;
// among equal seconds, those with the lower peak. Among choices equal in both, the result is always
// the same one. Seconds count in whole femtoseconds (Femtoseconds.h).
//
// Layers are decided from the last to the first. Of two partial choices that need the same bytes
// the faster one dominates, and bounds from the continuous relaxation discard further ones: this is
// a multiple-choice knapsack solved by labels, which are partial choices (Kellerer, Pferschy and
// Pisinger, "Knapsack Problems", 2004, chapter 11). The result is exact unless thousands of
// undominated partial choices remain, as happens when every option costs nearly the same per byte.
// Then only the most promising ones are kept, and the choice carries a lower bound of the time.
//
// Measured on the shipped models, at equal predicted seconds: a greedy choice (most bytes per
// second first) has a peak up to 9.7% higher where activations are most of the memory (demo,
// llama1b), and up to 0.4% higher for a model of 7B or 8B on one device, whose memory is mostly
// state. One option for all layers has a peak up to 84% higher.
// bench/results/planners-2026-11-22.md has all figures.
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
  uint64_t fixedBytes = 0;                     // state, and everything else that is always held
  uint64_t turnBytes = 0;

  // Returns an empty string when the problem is well formed, else what is wrong with it. All bytes
  // together, with the largest option of each layer, must be below 2^61; the slowest choice may
  // take at most an hour.
  std::string check() const;
};

struct RecomputeChoice {
  std::vector<int> options; // per layer, an index into its kind's options
  uint64_t peakBytes = 0;
  double seconds = 0;
  // A lower bound of the time of every choice within the budget; equal to `seconds` when this
  // choice is proven fastest.
  double boundSeconds = 0;

  // Returns an empty string when the options exist, the sums are right and `boundSeconds` is at
  // most `seconds`, else the fault.
  std::string verify(const RecomputeChoiceProblem &problem) const;
};

// Returns the fastest choice within `budget` bytes; nothing when no choice fits. Where the peak
// does not rise by it, the layers of a kind take their options in order of falling transients, so
// that layers with equal options are consecutive.
std::optional<RecomputeChoice> chooseRecompute(const RecomputeChoiceProblem &problem,
                                               uint64_t budget);

// Returns choices from the fastest of all to the one with the smallest peak. chooseRecompute() is
// called at `budgets` and at `steps` + 1 budgets that divide the range between these two peaks
// evenly; budgets that are too small for any choice are skipped. Seconds rise and peaks fall
// strictly along the list.
std::vector<RecomputeChoice> recomputeLadder(const RecomputeChoiceProblem &problem, int steps,
                                             const std::vector<uint64_t> &budgets);

} // namespace lmc
