// How the stand-in for NCCL puts a collective onto a stream of the stand-in for libcuda.
#pragma once

#include "test/hostdriver/Failure.h"

#include "plan_generated.h"

#include <functional>

namespace lmc::hostdriver {

struct Collective {
  plan::CollectiveKind kind;
  uint64_t x = 0, xBytes = 0, d = 0, dBytes = 0; // device memory
  const void *communicator = nullptr;
  uint64_t rank = 0;
  bool mayBeCaptured = false;
  // They get an operand as the host finds it. `ready` says whether all ranks have come, `run`
  // computes the result.
  std::function<bool(const void *x)> ready;
  std::function<void(void *d)> run;
  std::function<bool()> stopped; // says whether the communicator was aborted
};

// Appends the collective to the stream, or to the graph that it is being captured into. Fails if
// the plan has no such collective.
LMC_HOST_EXPORT void submit(const Collective &collective, CUstream stream);

// Fails if the host does not know that all collectives of the communicator have ended, or if a
// graph has some.
LMC_HOST_EXPORT void checkUnused(const void *communicator);
// Returns the name of a collective of the communicator that a graph has; "": there is none.
LMC_HOST_EXPORT std::string graphOf(const void *communicator);

// Returns the name of a queued collective of a communicator that was not aborted; "": there is
// none.
LMC_HOST_EXPORT std::string runningCollective();
// Returns true if the stream is being captured.
LMC_HOST_EXPORT bool isCaptured(CUstream stream);

// Fails if a capture goes on that forbids the call.
LMC_HOST_EXPORT void checkSafe();

// Returns the device that the program uses; -1 in a machine of one device: then each rank stands
// for a machine.
LMC_HOST_EXPORT int deviceOfMachine();

LMC_HOST_EXPORT void countLibraryObject(const char *kind, int change);

} // namespace lmc::hostdriver
