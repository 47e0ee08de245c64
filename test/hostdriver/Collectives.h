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
  bool mayBeCaptured = false;
  // They get an operand as the host finds it. `ready` says whether all ranks have come, `run`
  // computes the result.
  std::function<bool(const void *x)> ready;
  std::function<void(void *d)> run;
};

// Appends the collective to the stream, or to the graph that it is being captured into. Fails if
// the plan has no such collective.
LMC_HOST_EXPORT void submit(const Collective &collective, CUstream stream);

// Fails if the host does not know that all collectives of the communicator have ended, or if a
// graph has some.
LMC_HOST_EXPORT void checkUnused(const void *communicator);

LMC_HOST_EXPORT void countLibraryObject(const char *kind, int change);

} // namespace lmc::hostdriver
