#include "compiler/algorithms/BudgetSearch.h"

#include <algorithm>
#include <numeric>

using namespace lmc;

BudgetSearch::BudgetSearch(std::vector<BudgetCandidate> candidates, Measure measure)
    : candidates(std::move(candidates)), measure(std::move(measure)),
      known(this->candidates.size()) {}

Result<void> BudgetSearch::check() const {
  if (candidates.empty())
    return Error{"there is nothing to choose from"};
  for (size_t i = 0; i + 1 < candidates.size(); ++i)
    if (!(candidates[i].seconds <= candidates[i + 1].seconds))
      return userError("candidate {} is faster than the one before it", i + 1);
  return {};
}

std::optional<uint64_t> BudgetSearch::bytes(size_t candidate) {
  if (known[candidate])
    return known[candidate];
  std::optional<uint64_t> measured = broken ? std::nullopt : measure(candidate);
  if (!measured) {
    broken = true;
    return std::nullopt;
  }
  made.push_back({candidate, *measured});
  return known[candidate] = std::max(candidates[candidate].boundBytes, *measured);
}

std::optional<size_t> BudgetSearch::fastest(uint64_t budget) {
  for (size_t candidate = 0; candidate < candidates.size() && !broken; ++candidate)
    if (!candidates[candidate].isSpare && candidates[candidate].boundBytes <= budget)
      if (std::optional<uint64_t> needed = bytes(candidate); needed && *needed <= budget)
        return candidate;
  return std::nullopt;
}

std::optional<size_t> BudgetSearch::smallest(size_t most) {
  // Visits candidates in order of rising bounds, until a bound exceeds the best candidate's bytes.
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::erase_if(order, [&](size_t candidate) { return candidates[candidate].isSpare; });
  std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates[i].boundBytes; });
  order.resize(std::min(order.size(), most));
  std::optional<size_t> best;
  for (size_t candidate : order) {
    if (best && candidates[candidate].boundBytes > *known[*best])
      break;
    std::optional<uint64_t> needed = bytes(candidate);
    if (!needed)
      return std::nullopt;
    if (!best || *needed < *known[*best] || (*needed == *known[*best] && candidate < *best))
      best = candidate;
  }
  return best;
}
