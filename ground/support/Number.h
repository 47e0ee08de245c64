// Numbers as text, whatever the locale: a library that calls setlocale() makes std::strtod() stop at
// the point of "0.5" where numbers are written with a comma.
#pragma once

#include <optional>
#include <string_view>

namespace lmc {

// Returns the number that all of `text` is: "0.5", "-3", "1e-4", "inf". nullopt if it is none, or one
// that a double cannot hold.
std::optional<double> parseDouble(std::string_view text);

// Returns the double nearest to `value` written with `digits` significant digits. A value that is
// not finite is returned as it is.
double roundToDigits(double value, int digits);

} // namespace lmc
