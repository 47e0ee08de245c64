// Ranks that are threads of one process, for tests of what many ranks compute.
#pragma once

#include "runtime/comm/World.h"

#include <memory>
#include <vector>

namespace lmc {

// Returns one World per rank, each for a thread of its own and after divide(shardRanks, ranks). If
// a World is destroyed, other ranks' calls that need its rank return an Error.
std::vector<std::unique_ptr<World>> makeLocalWorlds(int ranks, int shardRanks = 1);

} // namespace lmc
