#include "ground/settings/PhaseSource.h"

#include "ground/support/Number.h"

#include <fmt/format.h>

#include <cmath>

namespace lmc {

Result<PhaseSource> parsePhaseSource(const std::string &text) {
  const size_t equals = text.find('=');
  PhaseSource source{text.substr(0, equals), std::nullopt};
  if (equals == std::string::npos)
    return source;
  source.weight = parseWhole<double>(text.substr(equals + 1));
  if (!source.weight || !std::isfinite(*source.weight) || *source.weight <= 0)
    return Error{fmt::format("'{}' is no source with a weight above 0, such as \"{}=0.7\"", text,
                             source.name)};
  return source;
}

} // namespace lmc
