#include "tools/report/RouterFigures.h"

#include "tools/report/Values.h"

#include <charconv>

using nlohmann::json;

namespace lmc {

// Returns the number of a layer from its key; nothing if the key is not a number of 1 to 6 digits.
static std::optional<int64_t> layerOf(const std::string &key) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (error != std::errc() || end != key.data() + key.size() || number < 0 || key.size() > 6)
    return std::nullopt;
  return number;
}

void RouterFigures::add(int64_t step, const json &router) {
  if (!router.is_object() || router.empty())
    return;
  tooMany = 0;
  groups.add(step);
  for (auto &[number, layer] : kept) {
    layer.maxLoad.beginLine(groups);
    layer.minLoad = layer.entropy = layer.balanceLoss = layer.late = std::nullopt;
  }
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
    layer.maxLoad.beginLine(groups);
    layer.maxLoad.set(step, numberAt(values, "max_load"));
    layer.minLoad = numberAt(values, "min_load");
    layer.entropy = numberAt(values, "entropy");
    layer.balanceLoss = numberAt(values, "balance_loss");
    layer.late = numberAt(values, "late");
  }
}

std::vector<const RouterFigures::Layer *> RouterFigures::layers() const {
  std::vector<const Layer *> all;
  for (const auto &[number, layer] : kept)
    all.push_back(&layer);
  return all;
}

} // namespace lmc
