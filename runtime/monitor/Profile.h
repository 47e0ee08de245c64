// Measures the time that a run spends in each function of the plan.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <map>
#include <string>

namespace lmc {

class Profile {
public:
  // Adds one run of `function` that took `seconds`.
  void add(const std::string &function, double seconds);

  // Writes {"functions": [{"name", "calls", "seconds", "mean_seconds", "min_seconds"}]}, the
  // function with the largest total first.
  Result<void> write(const std::string &path) const;

private:
  struct Entry {
    uint64_t calls = 0;
    double seconds = 0;
    double least = 0;
  };
  std::map<std::string, Entry> entries;
};

} // namespace lmc
