#include "compiler/analysis/Fusion.h"

#include "compiler/cost/PlanCost.h"
#include "runtime/plan/Names.h"

#include <algorithm>
#include <map>

using nlohmann::json;

namespace lmc {

int microStep(const plan::Plan &plan) {
  int found = -1, rank = 0;
  for (unsigned i = 0; i < plan.functions()->size(); ++i) {
    std::string_view name = plan.functions()->Get(i)->name()->string_view();
    int candidate = name == names::kMicro        ? 3
                    : name == names::kMicroLast  ? 2
                    : name == names::kMicroFirst ? 1
                                                 : 0;
    if (candidate > rank) {
      rank = candidate;
      found = int(i);
    }
  }
  return found;
}

unsigned firstBackward(const plan::Function &function) {
  unsigned first = 0;
  while (first < function.commands()->size() && !function.commands()->Get(first)->backward())
    ++first;
  return first;
}

static uint64_t median(const std::map<int, uint64_t> &byLayer) {
  std::vector<uint64_t> counts;
  for (const auto &[layer, count] : byLayer)
    counts.push_back(count);
  std::sort(counts.begin(), counts.end());
  return counts.empty() ? 0 : counts[counts.size() / 2];
}

json fusionReport(const plan::Plan &plan, const cost::DeviceSpec &spec, const json &said) {
  json report = said.is_object() ? said : json::object();
  int step = microStep(plan);
  if (step < 0)
    return report;
  std::map<int, uint64_t> forward, backward; // per layer, launches
  double layers = 0, head = 0;               // bytes
  const plan::Function &function = *plan.functions()->Get(unsigned(step));
  const unsigned turn = firstBackward(function);
  for (unsigned c = 0; c < function.commands()->size(); ++c) {
    const plan::Command *command = function.commands()->Get(c);
    int layer = command->layer();
    if (command->body_type() == plan::CommandBody::Launch && layer >= 0) {
      ++(c >= turn ? backward : forward)[layer];
      (c >= turn ? forward : backward).try_emplace(layer, 0);
    }
    const cost::Work work = cost::workOf(plan, *command);
    if (!cost::isMatrixWork(work))
      (layer >= 0 ? layers : head) += cost::estimate(work, spec).bytes;
  }
  double tokens =
      double(plan.batch()->micro_batch_size()) * double(plan.batch()->sequence_length());
  report["kernels_per_layer_forward"] = median(forward);
  report["kernels_per_layer_backward"] = median(backward);
  report["bytes_per_token"] = (layers + head) / tokens;
  report["layers_bytes_per_token"] = layers / tokens;
  report["head_bytes_per_token"] = head / tokens;
  if (const plan::TrafficFloor *floor = plan.model()->traffic_floor()) {
    report["floor_bytes_per_token"] = floor->layers() + floor->head();
    report["floor_layers_bytes_per_token"] = floor->layers();
    report["floor_head_bytes_per_token"] = floor->head();
  } else {
    for (const char *key :
         {"floor_bytes_per_token", "floor_layers_bytes_per_token", "floor_head_bytes_per_token"})
      report[key] = nullptr;
  }
  return report;
}

} // namespace lmc
