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
  static constexpr size_t kMaxLayers = 256; // only the first layers are kept

  struct Layer {
    int64_t number = 0;
    StepSeries maxLoad; // the share of the busiest expert
    // The latest step's values (nullopt: not in its line): share of the least busy expert, entropy
    // in nats, balancing loss, share of choices after a rank's first window (docs/running.md).
    std::optional<double> minLoad, entropy, balanceLoss, late;
  };

  // Adds the object `router` of a step. Keys that are not numbers of layers are ignored.
  void add(int64_t step, const nlohmann::json &router);

  std::vector<const Layer *> layers() const; // sorted by number
  const std::vector<int64_t> &groupSteps() const { return groups.steps(); }
  int64_t lastStep() const { return groups.lastStep(); } // last step with routers; 0: none
  size_t leftOut() const { return tooMany; } // layers of the latest step that are not kept

private:
  std::map<int64_t, Layer> kept; // by number
  StepGroups groups;
  size_t tooMany = 0;
};

} // namespace lmc
