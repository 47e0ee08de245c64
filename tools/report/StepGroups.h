// Puts the lines of a file into groups, so that a series keeps one point per group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lmc {

// All groups but the last have equally many consecutive lines: 1, then 2, 4, ... as the file grows.
class StepGroups {
public:
  static constexpr size_t kMax = 64; // an even number

  // Adds a line to the last group, or to a new one. If there were more than kMax groups, merges
  // neighbours first and returns true: the caller must then call merge() for each series.
  bool add(int64_t step) {
    bool merges = false;
    if (last.empty() || inLast == size) {
      if ((merges = last.size() == kMax)) {
        for (size_t i = 0; i < kMax / 2; ++i)
          last[i] = last[2 * i + 1];
        last.resize(kMax / 2);
        size *= 2;
      }
      last.emplace_back();
      inLast = 0;
    }
    last.back() = step;
    ++inLast;
    return merges;
  }
  // Merges the values of kMax groups in pairs. The higher value of each pair stays.
  static void merge(std::vector<std::optional<double>> &series) {
    for (size_t i = 0; i < kMax / 2; ++i)
      series[i] = std::max(series[2 * i], series[2 * i + 1]);
    series.resize(kMax / 2);
  }

  const std::vector<int64_t> &steps() const { return last; } // the last step of each group

private:
  std::vector<int64_t> last;
  int64_t size = 1, inLast = 0; // lines
};

} // namespace lmc
