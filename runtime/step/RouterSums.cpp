#include "runtime/step/RouterSums.h"

#include "ground/plan/Names.h"

#include <algorithm>
#include <numeric>

namespace lmc {

RouterSums::RouterSums(const PlanFile &plan) {
  const std::string prefix = std::string(names::kRouterCounts) + ".";
  for (const plan::Variable *variable : *plan->variables())
    if (const std::string name = variable->name()->str(); name.starts_with(prefix))
      layers.push_back(std::stoll(name.substr(prefix.size())));
  std::ranges::sort(layers);
  const plan::BatchInfo &batch = *plan->batch();
  tokens = static_cast<double>(batch.global_batch_size() * batch.sequence_length());
  microBatches = static_cast<double>(batch.global_batch_size() / batch.micro_batch_size());
}

void RouterSums::read(const VectorValues &values, uint64_t validTargets, StepRecord &record) const {
  auto vectorOf = [&](const std::string &name) -> const std::vector<double> & {
    static const std::vector<double> none;
    const auto found = values.find(name);
    return found == values.end() ? none : found->second;
  };
  auto sumOf = [&](const std::string &name) {
    const std::vector<double> &vector = vectorOf(name);
    return std::accumulate(vector.begin(), vector.end(), 0.0);
  };
  for (const int64_t layer : layers) {
    const double balance = sumOf(names::routerSum(names::kRouterBalance, layer));
    const double entropy = sumOf(names::routerSum(names::kRouterEntropy, layer));
    RouterRecord router{layer, vectorOf(names::routerSum(names::kRouterCounts, layer)),
                        entropy / tokens, balance / microBatches};
    const std::string late = names::routerSum(names::kRouterLate, layer);
    if (values.contains(late))
      router.late = sumOf(late) / std::accumulate(router.counts.begin(), router.counts.end(), 0.0);
    record.routers.push_back(std::move(router));
  }
  if (values.contains(names::kRouterBalance) && validTargets > 0)
    record.balanceLoss = sumOf(names::kRouterBalance) / static_cast<double>(validTargets);
}

} // namespace lmc
