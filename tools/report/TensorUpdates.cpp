#include "tools/report/TensorUpdates.h"

#include "ground/support/Json.h"

#include <nlohmann/json.hpp>

#include <cmath>

using nlohmann::json;

namespace lmc {

// Returns the number at `key` if it is finite and not negative.
static std::optional<double> sizeAt(const json &object, const std::string &key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number())
    return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

static void raise(std::optional<double> &highest, const std::optional<double> &value) {
  if (value && (!highest || *value > *highest))
    highest = value;
}

Result<void> TensorUpdates::update() {
  return file.read([this] { forget(); }, [this](std::string_view line) { read(line); });
}

void TensorUpdates::forget() {
  kept.clear();
  places.clear();
  groups.clear();
  groupSize = 1;
  inLastGroup = last = damagedLines = 0;
  tooMany = 0;
}

void TensorUpdates::read(std::string_view line) {
  // The JSON library sorts the keys of an object; the callback gets them in the order of the line.
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
  // The step is limited because JavaScript shows it; its whole numbers are exact up to 2^53.
  if (!step.is_number_integer() || step <= last || step > int64_t{1} << 53 || !ratios.is_object() ||
      !sizes.is_object()) {
    ++damagedLines;
    return;
  }
  beginLine(step.get<int64_t>());
  for (const std::string &name : names) {
    Tensor *tensor = find(name);
    if (!tensor) {
      ++tooMany;
      continue;
    }
    tensor->ratio = sizeAt(ratios, name);
    tensor->lastRms = sizeAt(sizes, name);
    if (!tensor->firstRms)
      tensor->firstRms = tensor->lastRms;
    if (tensor->ratio && (!tensor->highest || *tensor->ratio > tensor->highest->ratio))
      tensor->highest = {last, *tensor->ratio};
    raise(tensor->ratios.back(), tensor->ratio);
  }
}

// Adds a place for a line to the last group. Groups are merged in pairs when there are too many.
void TensorUpdates::beginLine(int64_t step) {
  last = step;
  tooMany = 0;
  if (!groups.empty() && inLastGroup < groupSize) {
    groups.back() = step;
    ++inLastGroup;
  } else {
    if (groups.size() == kMaxPoints) {
      for (size_t i = 0; i < kMaxPoints / 2; ++i)
        groups[i] = groups[2 * i + 1];
      groups.resize(kMaxPoints / 2);
      for (Tensor &tensor : kept) {
        for (size_t i = 0; i < kMaxPoints / 2; ++i) {
          tensor.ratios[i] = tensor.ratios[2 * i];
          raise(tensor.ratios[i], tensor.ratios[2 * i + 1]);
        }
        tensor.ratios.resize(kMaxPoints / 2);
      }
      groupSize *= 2;
    }
    groups.push_back(step);
    inLastGroup = 1;
  }
  for (Tensor &tensor : kept) {
    tensor.ratios.resize(groups.size());
    tensor.ratio = tensor.lastRms = std::nullopt;
  }
}

// Returns the tensor of this name, and adds it if there is room; nullptr if there is none.
TensorUpdates::Tensor *TensorUpdates::find(const std::string &name) {
  const std::string shown = name.substr(0, kMaxName);
  const auto place = places.find(shown);
  if (place != places.end())
    return &kept[place->second];
  if (kept.size() == kMaxTensors)
    return nullptr;
  places.emplace(shown, kept.size());
  kept.emplace_back().name = shown;
  kept.back().ratios.resize(groups.size());
  return &kept.back();
}

} // namespace lmc
