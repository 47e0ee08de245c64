// Converts numbers from and to text, independently of the locale. std::strtod() stops at the point
// of "0.5" if a library has called setlocale() for a language that writes numbers with a comma.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace lmc {

// Returns the number of type T that the whole `text` is, without a '+' before it. Returns nullopt
// if `text` is no number, or T cannot represent the number.
template <typename T> std::optional<T> parseWhole(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

// Returns the number that the whole `text` is: "0.5", "-3", "+1e-4", "inf". Returns nullopt if
// `text` is no number, or a double cannot represent the number.
std::optional<double> parseDouble(std::string_view text);

// Returns the double nearest to `value` written with `digits` significant digits. A value that is
// not finite is returned as it is.
double roundToDigits(double value, int digits);

} // namespace lmc
