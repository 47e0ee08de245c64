// Groups neighbouring lines of a file, so that a series needs to keep only one point per group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lmc {

// All groups but the last have the same number of lines: 1, then 2, 4, ... as the file grows.
class StepGroups {
public:
  static constexpr size_t kMax = 64; // an even number

  // Adds a line to the last group or, if that is full, to a new group. When there are kMax groups,
  // it first merges every two neighbours.
  void add(int64_t step) {
    if (last.empty() || inLast == size) {
      if (last.size() == kMax) {
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
  }

  const std::vector<int64_t> &steps() const { return last; } // the last step of each group
  int64_t lastStep() const { return last.empty() ? 0 : last.back(); } // 0: no line

private:
  std::vector<int64_t> last;
  int64_t size = 1, inLast = 0; // lines
};

// One quantity of the lines of a file, such as the update ratio of a tensor.
struct StepSeries {
  struct Highest {
    int64_t step = 0;
    double value = 0;
  };
  std::optional<double> latest;   // absent if the latest line has no value
  std::optional<Highest> highest; // maximum of all lines; the first if several equal it
  // The highest value of each group of lines; absent if no line of the group has a value.
  std::vector<std::optional<double>> groups;

  // Call this for every series after each lines.add(), even if the line has no value for the
  // series, because add() may have merged groups. Then call set(), if the line has a value.
  void beginLine(const StepGroups &lines) {
    if (groups.size() > lines.steps().size()) { // StepGroups::add() has merged groups
      for (size_t i = 0; i < StepGroups::kMax / 2; ++i)
        groups[i] = std::max(groups[2 * i], groups[2 * i + 1]);
      groups.resize(StepGroups::kMax / 2);
    }
    groups.resize(lines.steps().size());
    latest = std::nullopt;
  }
  // Sets the value of the latest line.
  void set(int64_t step, std::optional<double> value) {
    latest = value;
    if (value && (!highest || *value > highest->value))
      highest = {step, *value};
    groups.back() = std::max(groups.back(), value);
  }
};

} // namespace lmc
