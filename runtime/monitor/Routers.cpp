#include "runtime/monitor/Routers.h"

#include "ground/support/Number.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace lmc {

static double sumOf(const std::vector<double> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double RouterRecord::maxLoad() const { return *std::ranges::max_element(counts) / sumOf(counts); }
double RouterRecord::minLoad() const { return *std::ranges::min_element(counts) / sumOf(counts); }

static double rounded(double value) { return roundToDigits(value, 7); }

std::vector<std::pair<const char *, double>> valuesOf(const RouterRecord &router) {
  std::vector<std::pair<const char *, double>> values{
      {"max_load", rounded(router.maxLoad())},
      {"min_load", rounded(router.minLoad())},
      {"entropy", rounded(router.entropy)},
      {"balance_loss", rounded(router.balanceLoss)}};
  if (router.late)
    values.emplace_back("late", rounded(*router.late));
  return values;
}

std::optional<DeadExpertWatch::Verdict>
DeadExpertWatch::observe(int64_t step, const std::vector<RouterRecord> &routers) {
  Verdict verdict;
  bool isNew = false;
  std::vector<std::string> named;
  int64_t dead = 0, all = 0;
  for (const RouterRecord &router : routers) {
    std::vector<int64_t> &own = idle[router.layer];
    own.resize(router.counts.size());
    all += static_cast<int64_t>(own.size());
    for (size_t e = 0; e < own.size(); ++e) {
      own[e] = router.counts[e] > 0 ? 0 : own[e] + 1;
      isNew |= own[e] == steps;
      if (own[e] >= steps)
        verdict.experts[router.layer].push_back(static_cast<int64_t>(e));
    }
    if (const auto found = verdict.experts.find(router.layer); found != verdict.experts.end()) {
      constexpr size_t kNamed = 4; // layers
      dead += static_cast<int64_t>(found->second.size());
      if (verdict.experts.size() <= kNamed)
        named.push_back(
            fmt::format("{} of layer {}", fmt::join(found->second, ", "), router.layer));
    }
  }
  if (!isNew)
    return std::nullopt;
  if (verdict.experts.size() > named.size())
    named.push_back(
        fmt::format("and those of {} more layers", verdict.experts.size() - named.size()));
  verdict.warning =
      fmt::format("step {}: {} of {} experts got no token in the last {} steps "
                  "(guard.dead_expert): expert {}; a higher model.router_aux_loss_coef keeps "
                  "experts busy",
                  step, dead, all, steps, fmt::join(named, "; "));
  return verdict;
}

} // namespace lmc
