// Ranks that are threads of one process, for tests of what many ranks compute.
#pragma once

#include "runtime/comm/World.h"

#include <memory>
#include <vector>

namespace lmc {

// Returns `ranks` worlds, one for the thread of each rank, after World::divide(shardRanks, ranks).
// When a world is destroyed, its rank leaves: calls of the others that need it return an Error.
std::vector<std::unique_ptr<World>> makeLocalWorlds(int ranks, int shardRanks = 1);

} // namespace lmc
