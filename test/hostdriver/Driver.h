// The state of the host driver, and the frame of its entry points.
#pragma once

#include "test/hostdriver/Graphs.h"
#include "test/hostdriver/Memory.h"
#include "test/hostdriver/Modules.h"
#include "test/hostdriver/PlanCommands.h"
#include "test/hostdriver/Streams.h"

#include <map>
#include <mutex>

namespace lmc::hostdriver {

// What an entry point needs, and how an injected failure looks.
enum class Kind {
  Start,    // nothing: cuInit and the like
  Query,    // cuInit
  Call,     // cuInit, and a current context
  Allocate, // a Call that fails with CUDA_ERROR_OUT_OF_MEMORY
  Release,  // a Call that does its work even if it returns an error
  Leave,    // a Release that needs no context
};

class Driver {
public:
  ~Driver();           // writes the report
  static void reset(); // begins anew, and reads the environment again

  // Runs the body of an entry point under the lock, and returns what the entry point returns.
  LMC_HOST_EXPORT CUresult call(const char *name, Kind kind, const std::function<void()> &body);

  // Executes a command on a thread of its own, as a device does whose host does not wait. Returns
  // false if none can be executed.
  LMC_HOST_EXPORT static bool advance();

  // Returns true if a graph has a collective of the communicator.
  LMC_HOST_EXPORT bool isInGraph(const void *communicator);

  // Returns true if a collective is queued that may wait for other ranks.
  LMC_HOST_EXPORT bool hasCollective();

  void violation(const std::string &text); // reports a broken rule
  // Shows something that is no fault of the program.
  LMC_HOST_EXPORT void note(const std::string &text);

  Memory memory;
  PlanCommands plan;
  Streams streams;
  Graphs graphs;
  Modules modules;
  bool initialized = false;
  bool failing = false; // the call that goes on will return an error, as the environment asks
  int contexts = 0;     // how often the primary context is retained
  int device = 0;       // whose context it is
  std::map<std::string, int64_t> libraryObjects; // live objects of cuBLASLt by kind
  // Enqueued on streams of the least priority, or in graphs that were not told to use the
  // priorities of their nodes.
  uint64_t patientCollectives = 0;
  uint64_t pinnedAtLaunch = 0;                   // bytes of pinned memory at the last graph launch

private:
  CUresult callLocked(const char *name, Kind kind, const std::function<void()> &body);
  bool isFull(bool &executed);

  std::mutex mutex;
  std::vector<std::string> violations;
};

LMC_HOST_EXPORT Driver &driver();

// True if the calling thread has made the context current.
extern thread_local bool contextIsCurrent;

} // namespace lmc::hostdriver
