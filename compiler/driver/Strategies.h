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

// Returns the job on other devices and under another strategy. The GBS is rounded up to a multiple
// of MBS x devices. A number in `shard_group` becomes "auto" if the strategy changes or if the
// number does not divide the number of devices. `settings` does not change.
Config withRanks(Config job, int64_t nodes, int64_t devicesPerNode, ShardingStrategy strategy);

// Returns a warning if another strategy on the same devices also fits and gives at least 1.25 times
// the tokens/s. The warning names the fastest such strategy and both rates. `plan` is the plan of
// `config`, and `own` is its forecast. No other strategy is tried if the devices wait for other
// ranks for less than 1/5 of a step: without these waits, the step would not be 1.25 times as fast.
std::optional<std::string> strategyWarning(const Config &config, const plan::Plan &plan,
                                           const Forecast &own, const CompileOptions &options);

// Returns the section "scale" of a report (docs/explain.md): a list of rows. A row is for a number
// of `devices` and for a strategy. Strategies that would give equal plans have no rows. `plan` is
// the plan of `config`. Rows of the job's own strategy come from compiled plans, all others from
// quick forecasts (ForecastJob::isQuick).
//
// A node has the job's distributed.devices_per_node, or 8 devices if the job has one device. If a
// row has fewer devices, they form one smaller node. Returns an error if a larger number of devices
// is not a whole number of nodes, or if a job cannot be compiled.
llvm::Expected<nlohmann::json> scaleReport(const Config &config, const plan::Plan &plan,
                                           llvm::ArrayRef<int64_t> devices,
                                           const CompileOptions &options);

} // namespace lmc
