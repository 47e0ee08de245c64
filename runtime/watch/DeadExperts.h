// The watch of experts that got no token in a number of steps in a row ("dead" experts).
#pragma once

#include "runtime/watch/Watch.h"

#include <cstdint>
#include <map>
#include <vector>

namespace lmc {

class DeadExperts final : public Watch {
public:
  explicit DeadExperts(int64_t steps) : steps(steps) {}

  // Returns a finding with all dead experts if this step made an expert dead.
  WatchFindings settled(const StepRecord &record) override;

private:
  const int64_t steps;
  std::map<int64_t, std::vector<int64_t>> idle; // [layer][expert]: steps in a row without a token
};

} // namespace lmc
