// Numbers as text, the same in every locale: a library that calls setlocale() makes std::strtod()
// stop at the point of "0.5" where numbers are written with a comma.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace lmc {

// Returns the number of type T that `text` is as a whole, without a '+' before it. Returns nullopt
// if it is no number, or one that T cannot hold.
template <typename T> std::optional<T> parseWhole(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

// Returns the number that `text` is as a whole: "0.5", "-3", "+1e-4", "inf". Returns nullopt if
// it is no number, or one that a double cannot hold.
std::optional<double> parseDouble(std::string_view text);

// Returns the double nearest to `value` written with `digits` significant digits. A value that is
// not finite is returned as it is.
double roundToDigits(double value, int digits);

} // namespace lmc
