#include "tools/report/RouterFigures.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

using nlohmann::json;

namespace lmc {

static std::optional<double> figureAt(const json &object, const char *key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number() || !std::isfinite(found->get<double>()))
    return std::nullopt;
  return found->get<double>();
}

// Returns the number of a layer, which has at most 6 digits.
static std::optional<int64_t> layerOf(const std::string &key) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (error != std::errc() || end != key.data() + key.size() || number < 0 || key.size() > 6)
    return std::nullopt;
  return number;
}

// Opens a group for the step, or adds it to the last group. Neighbours merge if there are too many.
void RouterFigures::begin(int64_t step) {
  last = step;
  if (groups.empty() || inLastGroup == groupSize) {
    if (groups.size() == kMaxPoints) {
      for (size_t i = 0; i < kMaxPoints / 2; ++i)
        groups[i] = groups[2 * i + 1];
      groups.resize(kMaxPoints / 2);
      for (auto &[number, layer] : kept) {
        for (size_t i = 0; i < kMaxPoints / 2; ++i)
          layer.loads[i] = std::max(layer.loads[2 * i], layer.loads[2 * i + 1]);
        layer.loads.resize(kMaxPoints / 2);
      }
      groupSize *= 2;
    }
    groups.push_back(step);
    inLastGroup = 0;
    for (auto &[number, layer] : kept)
      layer.loads.emplace_back();
  }
  groups.back() = step;
  ++inLastGroup;
}

void RouterFigures::add(int64_t step, const json &router) {
  if (!router.is_object() || router.empty())
    return;
  begin(step);
  tooMany = 0;
  for (auto &[number, layer] : kept)
    layer.maxLoad = layer.minLoad = layer.entropy = layer.balanceLoss = layer.late = std::nullopt;
  for (const auto &[key, values] : router.items()) {
    const auto number = layerOf(key);
    if (!number || !values.is_object())
      continue;
    if (!kept.contains(*number) && kept.size() == kMaxLayers) {
      ++tooMany;
      continue;
    }
    Layer &layer = kept[*number];
    layer.number = *number;
    layer.loads.resize(groups.size());
    layer.maxLoad = figureAt(values, "max_load");
    layer.minLoad = figureAt(values, "min_load");
    layer.entropy = figureAt(values, "entropy");
    layer.balanceLoss = figureAt(values, "balance_loss");
    layer.late = figureAt(values, "late");
    if (layer.maxLoad && (!layer.highest || *layer.maxLoad > layer.highest->load))
      layer.highest = {step, *layer.maxLoad};
    layer.loads.back() = std::max(layer.loads.back(), layer.maxLoad);
  }
}

std::vector<const RouterFigures::Layer *> RouterFigures::layers() const {
  std::vector<const Layer *> all;
  for (const auto &[number, layer] : kept)
    all.push_back(&layer);
  return all;
}

} // namespace lmc
