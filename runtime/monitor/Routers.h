// Statistics of a step's routers in a mixture of experts.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lmc {

// The router of a layer in one step, over all micro-steps and ranks. Of C choices
// (num_experts_per_tok per token), expert e of E experts got counts[e].
struct RouterRecord {
  int64_t layer = 0;
  std::vector<double> counts;
  double entropy = 0; // mean over tokens of -sum of p ln p, in nats: at most ln E
  // Mean over the micro-batches of each rank of E sum over e of f P: f is the number of choices of
  // e per token, P its mean probability (Fedus et al. 2021, arXiv 2101.03961). It is
  // num_experts_per_tok if all experts are equally busy.
  double balanceLoss = 0;
  // The share of late choices, if a rank computes choices in windows.
  std::optional<double> late = {};

  // Return the shares of all choices that the busiest and the idlest expert got.
  double maxLoad() const;
  double minLoad() const;
};

// Returns the values of a router under their names in metrics.jsonl, rounded to 7 digits.
std::vector<std::pair<const char *, double>> valuesOf(const RouterRecord &router);

} // namespace lmc
