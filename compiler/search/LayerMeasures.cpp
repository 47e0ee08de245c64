#include "compiler/search/LayerMeasures.h"

#include "compiler/analysis/Fusion.h"
#include "compiler/analysis/Memory.h"
#include "compiler/cost/PlanCost.h"
#include "ground/plan/Names.h"
#include "ground/plan/SliceGeometry.h"

#include <algorithm>

namespace lmc {
namespace {

class Measurer {
public:
  Measurer(const plan::Plan &plan, const cost::CostModel &model) : plan(plan), model(model) {}

  PlanMeasures run() {
    addSeconds();
    MemoryTimeline timeline = memoryTimeline(plan);
    if (int function = fullestMicroStep(timeline); function >= 0) {
      addKept(function);
      addPeaks(function, timeline.functions[size_t(function)]);
    }
    return std::move(measures);
  }

private:
  // Returns the measures of layer `index`. Commands outside of layers have index -1: returns null.
  LayerMeasure *layer(int index) {
    if (index < 0)
      return nullptr;
    if (size_t(index) >= measures.layers.size())
      measures.layers.resize(size_t(index) + 1);
    return &measures.layers[size_t(index)];
  }

  void addSeconds() {
    cost::PlanCost cost = cost::planCost(plan, model);
    for (unsigned f = 0; f < plan.functions()->size(); ++f) {
      const cost::FunctionCost &spent = cost.functions[f];
      const plan::Function &function = *plan.functions()->Get(f);
      const bool isMicroStep = names::isMicroStep(function.name()->string_view());
      for (unsigned c = 0; c < spent.commands.size(); ++c) {
        const double seconds = double(spent.runsPerStep) * spent.commands[c].seconds;
        if (function.commands()->Get(c)->stream() != 0)
          continue; // an async collective: the command that waits for it has its seconds
        if (LayerMeasure *of = layer(function.commands()->Get(c)->layer()))
          of->seconds += seconds;
        else if (isMicroStep)
          measures.otherSeconds += seconds;
      }
    }
  }

  // Returns the index of the function with the highest peak among those that have both a forward
  // and a backward pass. Returns -1 if there is none.
  int fullestMicroStep(const MemoryTimeline &timeline) const {
    int fullest = -1;
    uint64_t most = 0;
    for (unsigned f = 0; f < plan.functions()->size(); ++f) {
      const plan::Function &function = *plan.functions()->Get(f);
      unsigned backwardStart = firstBackward(function);
      if (backwardStart == 0 || backwardStart == function.commands()->size())
        continue;
      if (timeline.functions[f].peakBytes > most) {
        most = timeline.functions[f].peakBytes;
        fullest = int(f);
      }
    }
    return fullest;
  }

  // Computes the bytes that each layer keeps. A slice belongs to the layer of the command that
  // writes it first. Several slices may be views of the same bytes, so a layer does not count bytes
  // that an earlier layer has counted.
  void addKept(int function) {
    const auto &commands = *plan.functions()->Get(unsigned(function))->commands();
    int64_t backwardStart = firstBackward(*plan.functions()->Get(unsigned(function)));
    std::vector<std::vector<const plan::Slice *>> held(measures.layers.size());
    for (const plan::Slice *slice : *plan.slices()) {
      if (slice->function() != function || slice->first_command() >= backwardStart ||
          slice->last_command() < backwardStart)
        continue;
      int made = commands.Get(unsigned(slice->first_command()))->layer();
      if (made >= 0 && size_t(made) < held.size())
        held[size_t(made)].push_back(slice);
    }
    std::vector<const plan::Slice *> all;
    uint64_t before = 0;
    for (size_t l = 0; l < held.size(); ++l) {
      all.insert(all.end(), held[l].begin(), held[l].end());
      uint64_t bytes = unionBytes(all);
      measures.layers[l].keptBytes = bytes - before;
      before = bytes;
    }
  }

  void addPeaks(int index, const FunctionMemory &memory) {
    const plan::Function &function = *plan.functions()->Get(unsigned(index));
    std::vector<uint64_t> held; // held[l]: bytes kept by layers 0..l
    uint64_t sum = 0;
    for (const LayerMeasure &layer : measures.layers)
      held.push_back(sum += layer.keptBytes);
    auto beyond = [](uint64_t live, uint64_t held) { return live > held ? live - held : 0; };
    unsigned backwardStart = firstBackward(function), commands = function.commands()->size();
    unsigned lastForward = 0,
             firstLayer = commands; // the layers' last forward and first backward command
    for (unsigned c = 0; c < commands; ++c)
      if (function.commands()->Get(c)->layer() >= 0) {
        if (c < backwardStart)
          lastForward = c;
        else
          firstLayer = std::min(firstLayer, c);
      }
    for (unsigned c = lastForward + 1; c < firstLayer; ++c)
      measures.headAndLossBytes =
          std::max(measures.headAndLossBytes, beyond(total(memory.live[c]), sum));
    for (unsigned c = backwardStart; c < commands; ++c)
      if (int at = function.commands()->Get(c)->layer(); at >= 0) {
        uint64_t &most = measures.layers[size_t(at)].transientBytes;
        most = std::max(most, beyond(total(memory.live[c]), held[size_t(at)]));
      }
  }

  const plan::Plan &plan;
  const cost::CostModel &model;
  PlanMeasures measures;
};

} // namespace

PlanMeasures measureLayers(const plan::Plan &plan, const cost::CostModel &model) {
  return Measurer(plan, model).run();
}

double microStepSeconds(const PlanMeasures &measures, size_t layers) {
  const std::vector<LayerMeasure> &measured = measures.layers;
  const double between = measured.size() > 2 ? double(layers - 2) / double(measured.size() - 2) : 1;
  double seconds = measures.otherSeconds;
  for (size_t layer = 0; layer < measured.size(); ++layer)
    seconds += measured[layer].seconds * (layer == 0 || layer + 1 == measured.size() ? 1 : between);
  return seconds;
}

} // namespace lmc
