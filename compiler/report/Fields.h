// Reads fields of a report (docs/explain.md) and prints them for people.
#pragma once

#include "compiler/report/Units.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lmc {

// Returns the number; 0 for any other JSON value.
inline double number(const nlohmann::json &value) {
  return value.is_number() ? value.get<double>() : 0;
}

// Returns a field that is a number; 0 if the field is missing or of another type.
inline double number(const nlohmann::json &object, const char *key) {
  auto it = object.find(key);
  return it != object.end() ? number(*it) : 0;
}

// Returns the text of a field; "" if the field is missing or of another type.
inline std::string word(const nlohmann::json &object, const char *key) {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// Print a number for people. With `key`, the number is the field `key` of `value`.
template <typename... Key> std::string bytesOf(const nlohmann::json &value, Key... key) {
  return readableBytes(number(value, key...));
}
template <typename... Key> std::string secondsOf(const nlohmann::json &value, Key... key) {
  return readableSeconds(number(value, key...));
}
inline std::string countOf(const nlohmann::json &value) { return readableCount(number(value)); }
inline std::string flopsOf(const nlohmann::json &value) { return readableFlops(number(value)); }
inline std::string bandwidthOf(const nlohmann::json &value) {
  return readableBandwidth(number(value));
}

// Returns the members of an object of numbers, the largest first.
inline std::vector<std::pair<double, std::string>> largestFirst(const nlohmann::json &object) {
  std::vector<std::pair<double, std::string>> members;
  for (const auto &[name, value] : object.items())
    members.push_back({number(value), name});
  std::sort(members.rbegin(), members.rend());
  return members;
}

// Returns the kernels of a report, in order of falling time per step.
inline std::vector<const nlohmann::json *> kernelsByTime(const nlohmann::json &report) {
  std::vector<const nlohmann::json *> kernels;
  for (const nlohmann::json &kernel : report["kernels"])
    kernels.push_back(&kernel);
  std::ranges::stable_sort(kernels, std::ranges::greater(), [](const nlohmann::json *kernel) {
    return number((*kernel)["seconds_per_step"]);
  });
  return kernels;
}

// Returns the number of layers with option number `index`. `layers` is a list of "recompute".
inline size_t takersOf(const nlohmann::json &layers, size_t index) {
  return size_t(std::ranges::count_if(layers, [&](const nlohmann::json &choice) {
    return choice.is_number() && choice.get<size_t>() == index;
  }));
}

} // namespace lmc
