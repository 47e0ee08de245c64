// Converts numbers from and to text, independently of the locale. In a locale with decimal commas,
// std::strtod() would stop at the point of "0.5".
#pragma once

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace lmc {

// Parses the whole `text` as a number of type T. Returns nullopt if `text` is not a number, begins
// with '+', or is outside the range of T.
template <typename T> std::optional<T> parseWhole(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

// Parses the whole `text` as a double. A leading '+' is allowed: "0.5", "-3", "+1e-4", "inf".
inline std::optional<double> parseDouble(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-"))
    text.remove_prefix(1);
  return parseWhole<double>(text);
}

// Rounds a finite `value` to `digits` significant decimal digits. Keeps infinities and NaN.
inline double roundToDigits(double value, int digits) {
  return std::isfinite(value) ? parseDouble(fmt::format("{:.{}g}", value, digits)).value_or(value)
                              : value;
}

} // namespace lmc
