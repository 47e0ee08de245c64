// A job under other sharding strategies and on other numbers of devices.
#pragma once

#include "ground/config/Config.h"

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace lmc {

// Returns the name that distributed.strategy has in a TOML file, such as "zero3".
llvm::StringRef strategyName(ShardingStrategy strategy);

// Returns the strategies whose plans differ on `nodes` nodes: only no_shard on one device; the
// hybrid ones only where several nodes have several devices each.
std::vector<ShardingStrategy> strategiesFor(int64_t nodes, int64_t devicesPerNode);

// Returns the job on other devices and under another strategy. The GBS becomes the smallest multiple
// of MBS x devices that is not below the job's GBS, which is the job's GBS where that is such a
// multiple. A `shard_group` that is a number is kept for the job's own strategy if it divides the
// devices, and is "auto" otherwise. The list `settings` of the result is that of `job`, and does not
// show these changes.
Config withRanks(Config job, int64_t nodes, int64_t devicesPerNode, ShardingStrategy strategy);

} // namespace lmc
