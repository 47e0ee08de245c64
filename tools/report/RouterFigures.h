// Statistics of the routers of a run's layers, from `router` in the lines of OUT/metrics.jsonl.
#pragma once

#include "tools/report/StepGroups.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace lmc {

class RouterFigures {
public:
  static constexpr size_t kMaxLayers = 256; // the first ones are kept

  struct Layer {
    int64_t number = 0;
    StepSeries maxLoad; // the share of the busiest expert
    // Values of the latest step; absent if its line lacks them: the lowest share of an expert, the
    // entropy in nats, the balancing loss, and the share of late choices (docs/running.md).
    std::optional<double> minLoad, entropy, balanceLoss, late;
  };

  // Adds the object `router` of a step. Keys that are not numbers of layers are ignored.
  void add(int64_t step, const nlohmann::json &router);

  std::vector<const Layer *> layers() const; // in the order of their numbers
  const std::vector<int64_t> &groupSteps() const { return groups.steps(); }
  int64_t lastStep() const { return groups.lastStep(); } // 0: no step had routers
  size_t leftOut() const { return tooMany; } // layers of the latest step not kept

private:
  std::map<int64_t, Layer> kept; // by number
  StepGroups groups;
  size_t tooMany = 0;
};

} // namespace lmc
