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

// Returns the strategies that give different plans on `nodes` nodes: only no_shard on one device;
// the hybrid ones only if several nodes have several devices each.
std::vector<ShardingStrategy> strategiesFor(int64_t nodes, int64_t devicesPerNode);

// Returns the job on other devices and under another strategy. Rounds the GBS up to a multiple of
// MBS x devices. Keeps a number in `shard_group` if the strategy stays the same and the number
// divides the devices; otherwise `shard_group` becomes "auto". Does not change `settings`.
Config withRanks(Config job, int64_t nodes, int64_t devicesPerNode, ShardingStrategy strategy);

// Returns a warning if another strategy on the same devices also fits and gives at least 1.25 times
// the tokens/s; it names the fastest such strategy and both rates. `own` is the forecast of `plan`,
// the plan of `config`. If the job waits for other ranks for less than a fifth of a step, no other
// strategy can be 1.25 times as fast, and none is forecast.
std::optional<std::string> strategyWarning(const Config &config, const plan::Plan &plan,
                                           const Forecast &own, const CompileOptions &options);

// Returns the section "scale" of a report (docs/explain.md): a list with one row for each number in
// `devices` and each strategy that gives a plan of its own there. `plan` is the plan of `config`.
// The rows of the job's own strategy are compiled; the others are quick forecasts
// (ForecastJob::isQuick).
//
// Nodes have the job's distributed.devices_per_node, or 8 devices if the job has one device. A
// number of devices below that is one smaller node. Errors: a larger number is not a whole number
// of nodes; a job cannot be compiled.
llvm::Expected<nlohmann::json> scaleReport(const Config &config, const plan::Plan &plan,
                                           llvm::ArrayRef<int64_t> devices,
                                           const CompileOptions &options);

} // namespace lmc
