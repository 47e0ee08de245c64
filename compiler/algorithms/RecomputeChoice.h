// Chooses one recompute option for each layer.
//
// Layer l of L keeps kept(l) bytes from its forward pass to its backward pass. The backward pass
// goes from the last layer to the first. At layer l, it needs transient(l) bytes in addition to the
// bytes that layers 0..l keep. The final norm, the head and the loss are computed while all layers'
// kept bytes are live. They need `headAndLossBytes` in addition to these bytes. So
//
//   peak = fixedBytes + max( headAndLossBytes + sum of kept(0..L-1),
//                            max over l of transient(l) + sum of kept(0..l) )
//
// Of all choices whose peak is within a budget, the result takes the fewest seconds. If several do,
// the result has the smallest peak of them.
//
// This is a multiple-choice knapsack problem. It is solved by dynamic programming over partial
// choices, which have options only for the last layers (Kellerer, Pferschy and Pisinger, "Knapsack
// Problems", 2004, chapter 11). Of two partial choices that need the same bytes, only the faster
// one stays. Lower bounds from the continuous relaxation discard more of them. If all options cost
// nearly the same seconds per byte, thousands may remain, and only the most promising ones stay.
// Then the result may not be the fastest choice. It states a lower bound of the time of any choice.
//
// On the shipped models, with equal predicted seconds, a greedy choice (the options that save most
// bytes per second first) has a peak up to 9.7% higher. One option for all layers has a peak up to
// 84% higher (bench/results/planners-2026-11-22.md).
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

  // Returns an error if the problem is not well formed. The bytes of all layers, each with its
  // largest option, must sum to less than 2^61, and the slowest choice may take at most an hour.
  Result<void> check() const;
};

struct RecomputeChoice {
  std::vector<int> options; // per layer, an index into the options of its kind
  uint64_t peakBytes = 0;
  double seconds = 0;
  // A lower bound of the seconds of every choice within the budget. If it equals `seconds`, this
  // choice is proven to be the fastest.
  double boundSeconds = 0;

  // Returns an error unless the options exist, `peakBytes` and `seconds` are right and
  // `boundSeconds` is at most `seconds`.
  Result<void> verify(const RecomputeChoiceProblem &problem) const;
};

// Returns the fastest choice within `budget` bytes; nothing when no choice fits. Among the layers
// of one kind, those with the same option are consecutive, unless this would raise the peak.
std::optional<RecomputeChoice> chooseRecompute(const RecomputeChoiceProblem &problem,
                                               uint64_t budget);

// Returns choices from the fastest to the one with the smallest peak. Each is slower than the
// choice before it, and has a smaller peak. Calls chooseRecompute() with each of `budgets`, and
// with `steps` + 1 evenly spaced budgets between the smallest and the largest peak. Skips
// budgets that are too small for any choice.
std::vector<RecomputeChoice> recomputeChoices(const RecomputeChoiceProblem &problem, int steps,
                                              const std::vector<uint64_t> &budgets);

} // namespace lmc
