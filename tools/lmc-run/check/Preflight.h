// lmc-run --preflight: measures the links between the ranks of a plan before it trains.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/comm/World.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// Seconds in which a preflight measures; links of less than some 1 Mbit/s make it longer.
constexpr double kPreflightSeconds = 5;

// Measures the axes of the plan's mesh, every two ranks of a node, and every two nodes. Prints them
// beside what the plan was compiled with, warns of links that are slower than others of their kind
// (tools/lmc-run/check/SlowLinks.h) and says how to correct the device spec. All ranks of `world`
// call it, after World::divide(). Returns SlowLink on all ranks if there was such a warning.
//
// If there are only two nodes, their link has none to be compared with. It is slow if an exchange
// over it takes twice the time that the plan assumed. Data travel between the memories of the
// hosts: for the plan of a GPU, the axes are not compared with what the plan assumed.
Result<ExitCode> preflight(const PlanFile &plan, World &world, const ProgramOptions &options);

} // namespace lmc
