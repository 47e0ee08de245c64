// A job under other sharding strategies and on other numbers of devices.
#pragma once

#include "ground/config/Config.h"

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace lmc {

// Returns the name that distributed.strategy has in a TOML file, such as "zero3".
llvm::StringRef strategyName(ShardingStrategy strategy);

// Returns the strategies that give different plans on `nodes` nodes: only no_shard on one device;
// the hybrid ones only if several nodes have several devices each.
std::vector<ShardingStrategy> strategiesFor(int64_t nodes, int64_t devicesPerNode);

// Returns the job on other devices and under another strategy. The GBS is rounded up to a multiple
// of MBS x devices. A number in `shard_group` is kept if the strategy stays the same and the number
// divides the devices; otherwise `shard_group` becomes "auto". The list `settings` of the result is
// that of `job`, and does not show these changes.
Config withRanks(Config job, int64_t nodes, int64_t devicesPerNode, ShardingStrategy strategy);

} // namespace lmc
