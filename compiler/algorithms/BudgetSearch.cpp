#include "compiler/algorithms/BudgetSearch.h"

#include <algorithm>
#include <numeric>

using namespace lmc;

BudgetSearch::BudgetSearch(std::vector<BudgetRung> rungs, Measure measure)
    : rungs(std::move(rungs)), measure(std::move(measure)), known(this->rungs.size()) {}

Result<void> BudgetSearch::check() const {
  if (rungs.empty())
    return Error{"there is nothing to choose from"};
  for (size_t i = 0; i + 1 < rungs.size(); ++i)
    if (!(rungs[i].seconds <= rungs[i + 1].seconds))
      return Error{"rung " + std::to_string(i + 1) + " is faster than the one before it"};
  return {};
}

std::optional<uint64_t> BudgetSearch::bytes(size_t rung) {
  if (known[rung])
    return known[rung];
  std::optional<uint64_t> measured = broken ? std::nullopt : measure(rung);
  if (!measured) {
    broken = true;
    return std::nullopt;
  }
  made.push_back({rung, *measured});
  return known[rung] = std::max(rungs[rung].boundBytes, *measured);
}

std::optional<size_t> BudgetSearch::fastest(uint64_t budget) {
  for (size_t rung = 0; rung < rungs.size() && !broken; ++rung)
    if (rungs[rung].boundBytes <= budget)
      if (std::optional<uint64_t> needed = bytes(rung); needed && *needed <= budget)
        return rung;
  return std::nullopt;
}

std::optional<size_t> BudgetSearch::smallest(size_t most) {
  // Measures the candidates in order of rising bound. The search ends when the best measured
  // candidate needs fewer bytes than the bound of the next candidate: no candidate after it can
  // need fewer.
  std::vector<size_t> order(rungs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rungs[a].boundBytes < rungs[b].boundBytes; });
  order.resize(std::min(order.size(), most));
  std::optional<size_t> best;
  for (size_t rung : order) {
    if (best && rungs[rung].boundBytes > *known[*best])
      break;
    std::optional<uint64_t> needed = bytes(rung);
    if (!needed)
      return std::nullopt;
    if (!best || *needed < *known[*best] || (*needed == *known[*best] && rung < *best))
      best = rung;
  }
  return best;
}
