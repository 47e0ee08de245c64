#include "ground/support/Size.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <strings.h>
#include <vector>

namespace lmc {

namespace {
struct Unit {
  const char *name;
  double bytes;
};
} // namespace

static constexpr Unit kUnits[] = {
    {"B", 1},           {"KB", 1e3},           {"MB", 1e6},
    {"GB", 1e9},        {"TB", 1e12},          {"KiB", 1024.0},
    {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};

Result<uint64_t> parseSize(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + digits, number);
  if (digits == 0 || status != std::errc() || end != text.data() + digits)
    return userError("\"{}\" is not a size; write bytes or a number and a unit, such as \"76GiB\"",
                     text);
  std::string_view unit = text.substr(digits);
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  const auto *known = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit &u) {
    return unit == u.name || (unit.empty() && u.bytes == 1);
  });
  if (known == std::end(kUnits)) {
    std::vector<std::string> names;
    std::string hint;
    for (const Unit &u : kUnits) {
      names.push_back(u.name);
      if (unit.size() == std::strlen(u.name) &&
          ::strncasecmp(unit.data(), u.name, unit.size()) == 0)
        hint = fmt::format("; did you mean '{}'?", u.name);
    }
    return userError("unknown unit '{}' in \"{}\"; units are {}{}", unit, text,
                     fmt::join(names, ", "), hint);
  }
  const double bytes = std::floor(number * known->bytes + 0.5);
  if (bytes >= 9.2e18) // about 2^63: a setting is a signed 64-bit integer of TOML
    return userError("\"{}\" is more than any memory", text);
  return static_cast<uint64_t>(bytes);
}

std::string formatBytes(uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit)
    value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

} // namespace lmc
