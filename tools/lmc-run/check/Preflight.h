// lmc-run --preflight: measures the links between the ranks of a plan before it trains.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/comm/World.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// A preflight takes about this many seconds, or longer for links of less than about 1 Mbit/s.
constexpr double kPreflightSeconds = 5;

// Measures the groups along the axes of the plan's mesh, every two ranks of a node, and every two
// nodes. Prints the speeds beside those that the plan assumed, and corrections of the device spec.
// Warns of slow links, and then returns SlowLink on all ranks. All ranks of `world` must call it,
// after World::divide().
//
// With only two nodes, their link is slow if an exchange takes twice the time that the plan
// assumed. Preflight sends data between the memories of the hosts. A plan for GPUs assumes other
// links, so its times are not compared.
Result<ExitCode> preflight(const PlanFile &plan, World &world, const ProgramOptions &options);

} // namespace lmc
