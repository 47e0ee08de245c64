// Watches a run of one rank, and reports when it makes no progress (runtime/comm/HangWatch.h).
#pragma once

#include "runtime/comm/HangWatch.h"
#include "runtime/monitor/RunLog.h"

#include <cstdio>
#include <memory>

namespace lmc {

// Watches the rank until the returned object is destroyed. Reports when a hang begins and ends: on
// `errors`, in log.txt and as an event `hang`. If the hang reaches the limit of Stall.h, the
// process ends with ExitCode::Failure.
std::unique_ptr<HangWatch> watchLoneRank(Progress &progress, const StallLimits &limits, RunLog &log,
                                         FILE *errors);

} // namespace lmc
