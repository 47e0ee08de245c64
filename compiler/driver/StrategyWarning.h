// Warns if another sharding strategy would make a job much faster.
#pragma once

#include "compiler/driver/Forecast.h"

#include <optional>
#include <string>

namespace lmc {

// Returns a warning if another strategy on the same devices also fits and gives at least 1.25 times
// the tokens/s; it names the fastest such strategy and both rates. `own` is the forecast of `plan`,
// the plan of `config`. Other strategies are forecast only if the job waits for other ranks for at
// least a fifth of a step: with less waiting, none of them can be 1.25 times as fast.
std::optional<std::string> strategyWarning(const Config &config, const plan::Plan &plan,
                                           const Forecast &own, const CompileOptions &options);

} // namespace lmc
