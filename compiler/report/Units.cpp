#include "compiler/report/Units.h"

#include <fmt/format.h>

#include <cmath>

namespace lmc {

std::string readableBytes(double bytes) {
  if (bytes < 1024)
    return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024)
    return fmt::format("{:.1f} KiB", bytes / 1024);
  if (bytes < 1024 * 1024 * 1024)
    return fmt::format("{:.1f} MiB", bytes / 1048576);
  return fmt::format("{:.2f} GiB", bytes / 1073741824);
}

std::string readableSeconds(double seconds) {
  if (seconds < 1e-3)
    return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1)
    return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 600)
    return fmt::format("{:.2f} s", seconds);
  return seconds < 2 * 3600 ? fmt::format("{:.1f} min", seconds / 60)
                            : fmt::format("{:.1f} h", seconds / 3600);
}

// Formats a rate with three digits and a prefix: "2.98 TB/s".
static std::string scaled(double rate, const char *unit) {
  const struct {
    double factor;
    const char *prefix;
  } prefixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}};
  for (const auto &[factor, prefix] : prefixes)
    if (rate >= factor)
      return fmt::format("{:.{}f} {}{}", rate / factor,
                         rate / factor < 10 ? 2 : rate / factor < 100, prefix, unit);
  return fmt::format("{:.0f} {}", rate, unit);
}

std::string readableFlops(double rate) { return scaled(rate, "FLOP/s"); }
std::string readableBandwidth(double rate) { return scaled(rate, "B/s"); }

std::string readableCount(double count) {
  std::string digits = fmt::format("{:.0f}", std::round(count));
  for (size_t i = digits.size(); i > 3; i -= 3)
    digits.insert(i - 3, ",");
  return digits;
}

} // namespace lmc
