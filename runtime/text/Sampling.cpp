#include "runtime/text/Sampling.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lmc {

double uniformAt(uint64_t seed, std::span<const uint64_t> place) {
  return static_cast<double>(XXH64(place.data(), place.size_bytes(), seed) >> 11) * 0x1p-53;
}

std::optional<uint32_t> chooseToken(std::span<const float> logits, const SamplingOptions &options,
                                    double uniform) {
  if (logits.empty() || !std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
    return std::nullopt;
  const auto largest = std::ranges::max_element(logits);
  if (options.temperature <= 0)
    return static_cast<uint32_t>(largest - logits.begin());
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::exp((double(logits[i]) - double(*largest)) / options.temperature);
  // The most probable ids come first; equally probable ids are ordered by id.
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.topP * whole))
    kept += weights[order[count++]];
  double left = uniform * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= weights[order[i]];
    if (left < 0)
      return order[i];
  }
  return order[count - 1];
}

} // namespace lmc
