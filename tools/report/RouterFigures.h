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

  struct Highest {
    int64_t step = 0;
    double load = 0;
  };
  struct Layer {
    int64_t number = 0;
    // Of the latest step, each absent if its line lacks it: the shares of the busiest and of the
    // idlest expert, the entropy in nats, the balancing loss, and the share of choices after a
    // rank's first window of rows.
    std::optional<double> maxLoad, minLoad, entropy, balanceLoss, late;
    std::optional<Highest> highest; // highest share of a busiest expert; of equal ones, the first
    // The highest share of a busiest expert in each group of steps; absent if no step has one.
    std::vector<std::optional<double>> loads;
  };

  // Adds the object `router` of a step. Keys that are not numbers of layers are ignored.
  void add(int64_t step, const nlohmann::json &router);

  std::vector<const Layer *> layers() const; // in the order of their numbers
  const std::vector<int64_t> &groupSteps() const { return groups.steps(); }
  int64_t lastStep() const { return last; }  // 0: no step had routers
  size_t leftOut() const { return tooMany; } // layers of the latest step not kept

private:
  std::map<int64_t, Layer> kept; // by number
  StepGroups groups;
  int64_t last = 0;
  size_t tooMany = 0;
};

} // namespace lmc
