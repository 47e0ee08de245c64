// Reads values from lines of a run's files, which may be damaged.
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

namespace lmc {

// Returns the number at `key`; nothing if it is absent, not a number, or null (not finite).
inline std::optional<double> numberAt(const nlohmann::json &object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number() || !std::isfinite(found->get<double>()))
    return std::nullopt;
  return found->get<double>();
}

// Returns the text at `key`; "" if there is none.
inline std::string textAt(const nlohmann::json &object, std::string_view key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

} // namespace lmc
