#include "runtime/monitor/Routers.h"

#include "ground/support/Number.h"

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

} // namespace lmc
