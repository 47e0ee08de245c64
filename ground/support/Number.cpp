#include "ground/support/Number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace lmc {

std::optional<double> parseDouble(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-"))
    text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

double roundToDigits(double value, int digits) {
  return std::isfinite(value) ? parseDouble(fmt::format("{:.{}g}", value, digits)).value_or(value)
                              : value;
}

} // namespace lmc
