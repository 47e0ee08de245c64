// lmc-run --preflight: measures the links between the ranks of a plan before it trains.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/comm/World.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// A preflight takes about this many seconds, or longer for links of less than about 1 Mbit/s.
constexpr double kPreflightSeconds = 5;

// Measures the axes of the plan's mesh, every two ranks of a node, and every two nodes. Prints the
// speeds beside the plan's assumptions, and how to correct the device spec. Warns of links that are
// slower than others of their kind. All ranks of `world` must call it, after World::divide().
// Returns SlowLink on all ranks if there was such a warning.
//
// With only two nodes, their link is slow if an exchange takes twice the time that the plan
// assumed. Data travels between the memories of the hosts. A GPU's plan assumes other links, so its
// assumptions are not compared.
Result<ExitCode> preflight(const PlanFile &plan, World &world, const ProgramOptions &options);

} // namespace lmc
