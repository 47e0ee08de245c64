#include "ground/settings/PhaseSource.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace lmc {

Result<PhaseSource> parsePhaseSource(const std::string &text) {
  const size_t equals = text.find('=');
  PhaseSource source{text.substr(0, equals), std::nullopt};
  if (equals == std::string::npos)
    return source;
  const char *begin = text.data() + equals + 1, *end = text.data() + text.size();
  double weight = 0;
  const auto [stop, error] = std::from_chars(begin, end, weight);
  if (error != std::errc() || stop != end || !std::isfinite(weight) || weight <= 0)
    return Error{fmt::format("'{}' is no source with a weight above 0, such as \"{}=0.7\"", text,
                             source.name)};
  source.weight = weight;
  return source;
}

} // namespace lmc
