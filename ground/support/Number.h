// Numbers as text, the same in every locale: a library that calls setlocale() makes std::strtod()
// stop at the point of "0.5" where numbers are written with a comma.
#pragma once

#include <optional>
#include <string_view>

namespace lmc {

// Returns the number that `text` is as a whole: "0.5", "-3", "1e-4", "inf". Returns nullopt if it
// is no number, or one that a double cannot hold.
std::optional<double> parseDouble(std::string_view text);

// Returns the double nearest to `value` written with `digits` significant digits. A value that is
// not finite is returned as it is.
double roundToDigits(double value, int digits);

} // namespace lmc
