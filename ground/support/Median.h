// Computes the median of measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace lmc {

// Returns the median of at least one value. For an even count, it is the mean of the middle two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

} // namespace lmc
