// Ranks that are processes, on one machine or many, connected by TCP.
//
// Gloo (https://github.com/facebookincubator/gloo) only carries messages between two ranks. The
// collectives are implemented here. Gloo's own collectives have an order of additions that depends
// on the algorithm, and a wait for them cannot be ended.
#pragma once

#include "runtime/comm/LaunchEnvironment.h"
#include "runtime/comm/World.h"
#include "runtime/comm/rendezvous/Rendezvous.h"

namespace lmc {

// Connects to the other ranks of the run, and calls ignoreFailedWrites() for this process.
Result<std::unique_ptr<World>> joinGlooWorld(const RendezvousOptions &options);

// Returns the times after which a rank counts as hung: those in `options`, else `defaults`.
StallLimits stallLimits(const LaunchOptions &options, StallLimits defaults = {});

// Finds this rank's number in `options` or the environment, and connects to the other ranks. Only
// the durations in `times` are used. Error: the ranks are not numbered host by host.
Result<std::unique_ptr<World>> openWorld(const LaunchOptions &options,
                                         const RendezvousOptions &times = {});

} // namespace lmc
