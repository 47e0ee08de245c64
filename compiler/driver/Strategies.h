// Forecasts of a job under other sharding strategies and on other numbers of devices.
#pragma once

#include "compiler/driver/Forecast.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Returns the name that distributed.strategy has in a TOML file, such as "zero3".
llvm::StringRef strategyName(ShardingStrategy strategy);

// Returns the strategies that give different plans on `nodes` nodes. For one device, this is only
// no_shard. Hybrid strategies need several nodes with several devices each.
std::vector<ShardingStrategy> strategiesFor(int64_t nodes, int64_t devicesPerNode);

// Returns the job on other devices and under another strategy. Rounds the GBS up to a multiple of
// MBS x devices. If the strategy stays the same, a number in `shard_group` that divides the number
// of devices stays; otherwise `shard_group` becomes "auto". Does not change `settings`.
Config withRanks(Config job, int64_t nodes, int64_t devicesPerNode, ShardingStrategy strategy);

// Returns a warning if another strategy on the same devices also fits and gives at least 1.25 times
// the tokens/s. The warning names the fastest such strategy and both rates. `plan` is the plan of
// `config`, and `own` is its forecast. If the job waits for other ranks for less than a fifth of a
// step, no strategy can be 1.25 times as fast, and none is forecast.
std::optional<std::string> strategyWarning(const Config &config, const plan::Plan &plan,
                                           const Forecast &own, const CompileOptions &options);

// Returns the section "scale" of a report (docs/explain.md): a list of rows. Each number of devices
// in `devices` has one row per strategy that gives a different plan there. `plan` is the plan of
// `config`. The rows of the job's own strategy are compiled; the others are quick forecasts
// (ForecastJob::isQuick).
//
// A node has the job's distributed.devices_per_node, or 8 devices if the job has one device. Fewer
// devices are one smaller node. Errors: a larger number of devices is not a whole number of nodes;
// a job cannot be compiled.
llvm::Expected<nlohmann::json> scaleReport(const Config &config, const plan::Plan &plan,
                                           llvm::ArrayRef<int64_t> devices,
                                           const CompileOptions &options);

} // namespace lmc
