// Statistics of a step's routers in a mixture of experts.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lmc {

// A layer's router in one step, over all micro-steps and ranks. The router chooses
// num_experts_per_tok of E experts for each token. counts[e] is the number of choices of expert e.
struct RouterRecord {
  int64_t layer = 0;
  std::vector<double> counts;
  double entropy = 0; // mean over tokens of -sum of p ln p, in nats: at most ln E
  // The mean of E * (sum of f_e P_e over experts e) over the micro-batches of all ranks. f_e is the
  // number of choices of expert e per token. P_e is the mean probability of e (Fedus et al. 2021,
  // arXiv 2101.03961). The mean is num_experts_per_tok if all experts are equally busy.
  double balanceLoss = 0;
  // Share of choices computed after a rank's first group of rows; absent if expert_capacity is 0.
  std::optional<double> late = {};

  // Return the shares of all choices that the most and the least busy expert got.
  double maxLoad() const;
  double minLoad() const;
};

// Returns the values of a router under their names in metrics.jsonl, rounded to 7 digits.
std::vector<std::pair<const char *, double>> valuesOf(const RouterRecord &router);

} // namespace lmc
