// Ranks that are processes, on one machine or many, connected by TCP.
//
// Every two ranks of a group have a connection by Gloo (https://github.com/facebookincubator/gloo),
// which only carries messages between two ranks. This file implements the collectives, because
// Gloo's own ones add in an order that depends on the algorithm, and their waits cannot be ended.
#pragma once

#include "runtime/comm/LaunchEnvironment.h"
#include "runtime/comm/World.h"
#include "runtime/comm/rendezvous/Rendezvous.h"

namespace lmc {

// Joins the other ranks of the run. An Error of a Communicator's function names the rank that has
// failed. The process calls ignoreFailedWrites().
Result<std::unique_ptr<World>> joinGlooWorld(const RendezvousOptions &options);

// Returns the times after which a rank counts as hung: `defaults`, unless `options` give others.
StallLimits stallLimits(const LaunchOptions &options, StallLimits defaults = {});

// Finds this rank's number in `options` and the environment, and joins the other ranks. A world of
// one rank opens no connection. Returns an Error if the ranks are not numbered host by host. Of
// `times`, only the durations are used.
Result<std::unique_ptr<World>> openWorld(const LaunchOptions &options,
                                         const RendezvousOptions &times = {});

} // namespace lmc
