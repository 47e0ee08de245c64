// Computes the median of a stream of values in limited memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>

namespace lmc {

// Counts values by their logarithm, as DDSketch does (Masson et al., VLDB 2019): bucket i has the
// values from g^i to g^(i+1). With g = 1.002 the error of the median is at most 0.1%.
class MedianSketch {
public:
  // Ignores a value that is not positive and finite.
  void add(double value) {
    if (!std::isfinite(value) || value <= 0)
      return;
    ++counts[static_cast<int32_t>(std::floor(std::log(value) / kLogGrowth))];
    ++total;
  }

  // Returns the lower middle value if the number of values is even; nothing if there is no value.
  std::optional<double> median() const {
    uint64_t below = 0;
    for (const auto &[index, count] : counts)
      if ((below += count) * 2 >= total)
        return std::exp((index + 0.5) * kLogGrowth);
    return std::nullopt;
  }

private:
  static constexpr double kLogGrowth = 0.001998002662673; // ln 1.002
  std::map<int32_t, uint64_t> counts;
  uint64_t total = 0;
};

} // namespace lmc
