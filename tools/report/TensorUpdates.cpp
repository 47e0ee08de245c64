#include "tools/report/TensorUpdates.h"

#include "ground/support/Json.h"
#include "tools/report/Values.h"

using nlohmann::json;

namespace lmc {

// Returns the number at `key` if it is finite and not negative.
static std::optional<double> sizeAt(const json &object, const std::string &key) {
  const std::optional<double> value = numberAt(object, key);
  return value >= 0 ? value : std::nullopt;
}

Result<bool> TensorUpdates::update() {
  return file.read([this](std::string_view line) { read(line); });
}

void TensorUpdates::read(std::string_view line) {
  // The JSON library sorts keys by name. `names` keeps the order in the file.
  std::vector<std::string> names;
  std::string outer;
  const auto keepOrder = [&](int depth, json::parse_event_t event, json &parsed) {
    if (event == json::parse_event_t::key && depth == 1)
      outer = parsed.get<std::string>();
    else if (event == json::parse_event_t::key && depth == 2 && outer == "update_ratio")
      names.push_back(parsed.get<std::string>());
    return true;
  };
  const json record =
      isShallowJson(line) ? json::parse(line, keepOrder, /*allow_exceptions=*/false) : json();
  const auto part = [&](const char *key) {
    return record.is_object() && record.contains(key) ? record[key] : json();
  };
  const json step = part("step"), ratios = part("update_ratio"), sizes = part("weight_rms");
  // The page's JavaScript has exact integers up to 2^53.
  if (!step.is_number_integer() || step <= lastStep() || step > int64_t{1} << 53 ||
      !ratios.is_object() || !sizes.is_object()) {
    ++damagedLines;
    return;
  }
  tooMany = 0;
  groups.add(step.get<int64_t>());
  for (Tensor &tensor : kept) {
    tensor.ratio.beginLine(groups);
    tensor.lastRms = std::nullopt;
  }
  for (const std::string &name : names) {
    Tensor *tensor = find(name);
    if (!tensor) {
      ++tooMany;
      continue;
    }
    tensor->ratio.set(lastStep(), sizeAt(ratios, name));
    tensor->lastRms = sizeAt(sizes, name);
    if (!tensor->firstRms)
      tensor->firstRms = tensor->lastRms;
  }
}

// Returns the tensor of this name, after adding it if it is new; null if there are too many.
TensorUpdates::Tensor *TensorUpdates::find(const std::string &name) {
  const std::string shown = name.substr(0, kMaxName);
  const auto place = places.find(shown);
  if (place != places.end())
    return &kept[place->second];
  if (kept.size() == kMaxTensors)
    return nullptr;
  places.emplace(shown, kept.size());
  kept.emplace_back().name = shown;
  kept.back().ratio.beginLine(groups);
  return &kept.back();
}

} // namespace lmc
