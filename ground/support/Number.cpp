#include "ground/support/Number.h"

#include <fmt/format.h>

#include <cmath>

namespace lmc {

std::optional<double> parseDouble(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-"))
    text.remove_prefix(1);
  return parseWhole<double>(text);
}

double roundToDigits(double value, int digits) {
  return std::isfinite(value) ? parseDouble(fmt::format("{:.{}g}", value, digits)).value_or(value)
                              : value;
}

} // namespace lmc
