// Ranks that are threads of one process, for tests of what many ranks compute.
#pragma once

#include "runtime/comm/World.h"

#include <memory>
#include <vector>

namespace lmc {

// Returns one World per rank, after divide(shardRanks, ranks). Each rank's thread must use its own
// World. If a World is destroyed, calls of other ranks that need its rank return an Error.
std::vector<std::unique_ptr<World>> makeLocalWorlds(int ranks, int shardRanks = 1);

} // namespace lmc
