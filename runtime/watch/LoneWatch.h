// Reports a run of one rank that makes no progress (runtime/comm/HangWatch.h).
#pragma once

#include "runtime/comm/HangWatch.h"
#include "runtime/monitor/RunLog.h"

#include <cstdio>
#include <memory>

namespace lmc {

// Watches as long as the returned object exists. The begin and the end of a hang are reported as a
// warning on `errors`, a line of log.txt and an event `hang`. If findStall() counts the rank as
// lost, the process reports this and ends with ExitCode::Failure.
std::unique_ptr<HangWatch> watchLoneRank(Progress &progress, const StallLimits &limits, RunLog &log,
                                         FILE *errors);

} // namespace lmc
