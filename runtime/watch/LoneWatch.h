// Reports a run of one rank that makes no progress (runtime/comm/HangWatch.h).
#pragma once

#include "runtime/comm/HangWatch.h"
#include "runtime/monitor/RunLog.h"

#include <cstdio>
#include <memory>

namespace lmc {

// Watches as long as the returned object exists. Reports the begin and the end of a hang on
// `errors`, in log.txt and as an event `hang`. If findStall() counts the rank as lost, the process
// ends with ExitCode::Failure.
std::unique_ptr<HangWatch> watchLoneRank(Progress &progress, const StallLimits &limits, RunLog &log,
                                         FILE *errors);

} // namespace lmc
