// Chooses one recompute option for each layer.
//
// There are L layers. Layer l keeps kept(l) bytes from its forward to its backward pass. The
// backward pass goes from the last layer to the first: at layer l, the bytes kept by layers 0..l
// are live, and in addition transient(l), the `transientBytes` of the layer's option. At the start
// of the backward pass, the bytes kept by all layers are live, and in addition `headAndLossBytes`,
// those of the last norm, the head and the loss. So
//
//   peak = fixedBytes + max( headAndLossBytes + sum of all kept,
//                            max over l of transient(l) + sum of kept(0..l) )
//
// The problem is to choose the options with the minimum sum of seconds whose peak is within a
// budget, and among choices with equal seconds one with the minimum peak. Among choices that are
// equal in both, the algorithm always returns the same one. Seconds are counted in whole
// femtoseconds (Femtoseconds.h).
//
// Layers are decided from the last to the first. A partial choice is an option for each layer that
// is already decided. Of two partial choices that need the same bytes, the faster one dominates.
// Bounds from the continuous relaxation of the problem discard further partial choices. This is a
// multiple-choice knapsack problem solved by dynamic programming over lists of undominated partial
// choices (Kellerer, Pferschy and Pisinger, "Knapsack Problems", 2004, chapter 11). The result is
// exact unless thousands of undominated partial choices remain, which happens when every option
// costs nearly the same per byte. In that case only the most promising partial choices are kept,
// and the result states a lower bound of the time.
//
// Measured on the shipped models, at equal predicted seconds: a greedy choice (the options that
// save most bytes per second first) has a peak up to 9.7% higher where activations are most of the
// memory (demo, llama1b), and up to 0.4% higher for a model of 7B or 8B parameters on one device,
// whose memory is mostly state. The same option for all layers has a peak up to 84% higher. All
// figures are in bench/results/planners-2026-11-22.md.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace lmc {

struct LayerOption {
  uint64_t keptBytes = 0;
  uint64_t transientBytes = 0;
  double seconds = 0;

  bool operator==(const LayerOption &) const = default;
};

struct RecomputeChoiceProblem {
  std::vector<std::vector<LayerOption>> kinds; // options of each kind of layer
  std::vector<int> layers;                     // the kind of each layer, first to last
  uint64_t fixedBytes = 0;       // bytes of state, and of all other data that is always live
  uint64_t headAndLossBytes = 0; // bytes that head and loss need, in addition to all kept bytes

  // Returns an error that names the fault unless the problem is well formed. The bytes of all
  // layers, each with its largest option, must sum to less than 2^61, and the slowest choice may
  // take at most an hour.
  Result<void> check() const;
};

struct RecomputeChoice {
  std::vector<int> options; // per layer, an index into the options of its kind
  uint64_t peakBytes = 0;
  double seconds = 0;
  // A lower bound of the seconds of every choice within the budget. It equals `seconds` when this
  // choice is proven to be the fastest.
  double boundSeconds = 0;

  // Returns an error that names the fault unless the options exist, the sums are right and
  // `boundSeconds` is at most `seconds`.
  Result<void> verify(const RecomputeChoiceProblem &problem) const;
};

// Returns the fastest choice within `budget` bytes; nothing when no choice fits. The layers of each
// kind take their options in order of falling transients, so that layers with equal options are
// consecutive, unless this order would raise the peak.
std::optional<RecomputeChoice> chooseRecompute(const RecomputeChoiceProblem &problem,
                                               uint64_t budget);

// Returns a list of choices, from the fastest of all to the one with the smallest peak. It calls
// chooseRecompute() with each of `budgets`, and with `steps` + 1 budgets that divide the range
// between these two peaks evenly. Budgets that are too small for any choice are skipped. Along the
// list, seconds rise strictly and peaks fall strictly.
std::vector<RecomputeChoice> recomputeChoices(const RecomputeChoiceProblem &problem, int steps,
                                              const std::vector<uint64_t> &budgets);

} // namespace lmc
