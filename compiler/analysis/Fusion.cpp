#include "compiler/analysis/Fusion.h"

#include "compiler/cost/PlanCost.h"
#include "ground/plan/Names.h"
#include "ground/plan/Operands.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

using nlohmann::json;

namespace lmc {

int microStep(const plan::Plan &plan) {
  for (std::string_view name : {names::kMicro, names::kMicroLast, names::kMicroFirst})
    for (unsigned i = 0; i < plan.functions()->size(); ++i)
      if (plan.functions()->Get(i)->name()->string_view() == name)
        return int(i);
  return -1;
}

unsigned firstBackward(const plan::Function &function) {
  unsigned first = 0;
  // Skips async collectives: one of the backward pass may start before the forward pass ends.
  auto isBackward = [](const plan::Command &command) {
    return command.backward() && command.stream() == 0;
  };
  while (first < function.commands()->size() && !isBackward(*function.commands()->Get(first)))
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

namespace {

// The bytes of main gradients that matrix products read or write.
struct GradientTraffic {
  double layers = 0, head = 0;
  double floor = 0; // the bytes if each gradient were computed by only one product

  void add(const plan::Plan &plan, const plan::Gemm &gemm, int layer) {
    const plan::Slice &d = *plan.slices()->Get(gemm.d());
    if (d.category() != plan::Category::Gradients)
      return;
    const double bytes = double(d.bytes()) * (plan::accumulates(gemm) ? 2 : 1);
    (layer >= 0 ? layers : head) += bytes;
    if (seen.insert({d.arena(), d.offset()}).second)
      floor += bytes;
  }

private:
  std::set<std::pair<uint32_t, uint64_t>> seen; // places of gradients
};

} // namespace

json fusionReport(const plan::Plan &plan, const cost::DeviceSpec &spec, const json &said) {
  json report = said.is_object() ? said : json::object();
  int step = microStep(plan);
  if (step < 0)
    return report;
  std::map<int, uint64_t> forward, backward; // per layer, launches
  double layers = 0, head = 0;               // bytes
  GradientTraffic gradients;
  const plan::Function &function = *plan.functions()->Get(unsigned(step));
  const unsigned backwardStart = firstBackward(function);
  for (unsigned c = 0; c < function.commands()->size(); ++c) {
    const plan::Command *command = function.commands()->Get(c);
    int layer = command->layer();
    const cost::Work work = cost::workOf(plan, *command);
    const auto *swiglu = std::get_if<cost::SwigluWork>(&work); // product with SwiGLU, else null
    if ((command->body_as_Launch() || swiglu) && layer >= 0) {
      ++(c >= backwardStart ? backward : forward)[layer];
      (c >= backwardStart ? forward : backward).try_emplace(layer, 0);
    }
    if (const plan::Gemm *gemm = command->body_as_Gemm())
      gradients.add(plan, *gemm, layer);
    if (swiglu)
      (layer >= 0 ? layers : head) += swiglu->rows.readBytes + swiglu->rows.writtenBytes;
    else if (!cost::isMatrixWork(work))
      (layer >= 0 ? layers : head) += cost::estimate(work, spec).bytes;
  }
  double tokens =
      double(plan.batch()->micro_batch_size()) * double(plan.batch()->sequence_length());
  report["kernels_per_layer_forward"] = median(forward);
  report["kernels_per_layer_backward"] = median(backward);
  report["bytes_per_token"] = (layers + head) / tokens;
  report["layers_bytes_per_token"] = layers / tokens;
  report["head_bytes_per_token"] = head / tokens;
  report["gradient_bytes_per_token"] = (gradients.layers + gradients.head) / tokens;
  report["gradient_head_bytes_per_token"] = gradients.head / tokens;
  report["floor_gradient_bytes_per_token"] =
      gradients.floor > 0 ? json(gradients.floor / tokens) : json();
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
