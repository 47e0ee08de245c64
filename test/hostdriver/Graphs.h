// Stream capture and graphs, with CUDA's rules (CUDA C++ Programming Guide, "Creating a Graph Using
// Stream Capture", and the comments of cuda.h).
#pragma once

#include "test/hostdriver/Streams.h"

#include <thread>

namespace lmc::hostdriver {

// A capture that goes on, or has ended. The first of its streams began it, and the others joined it
// through events.
struct Capture {
  CUstreamCaptureMode mode;
  std::thread::id thread;
  bool ended = false, invalid = false;
  std::vector<CUstream> streams;
  std::vector<Node> nodes;
};

} // namespace lmc::hostdriver

struct CUgraph_st {
  std::shared_ptr<const std::vector<lmc::hostdriver::Node>> nodes;
  uint32_t chains = 0;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<lmc::hostdriver::Node>> nodes;
  std::vector<uint32_t> lines;         // of the chains
  lmc::hostdriver::MarkPtr lastLaunch; // the next one is ordered behind it
  bool nodesHavePriorities = false;    // else they have that of the stream they are launched into
};

namespace lmc::hostdriver {

class Graphs {
public:
  Registry<CUgraph_st> graphs;
  Registry<CUgraphExec_st> execs;

  void begin(CUstream stream, CUstreamCaptureMode mode);
  CUgraph end(CUstream stream);
  // Ends the capture that the stream takes part in, because the stream is destroyed.
  void abandon(CUstream stream);

  // Appends a command to a stream, or to the graph that it is being captured into.
  void submit(CUstream stream, WorkPtr work);
  void record(CUevent event, CUstream stream);
  void wait(CUstream stream, CUevent event);

  // Fails in a call that waits for, or asks about, a stream that is being captured.
  void checkNotCapturing(CUstream stream);
  // Fails if the event was last recorded in a capture.
  void checkNotCaptured(CUevent event);
  // Fails in a call that may not be made while a capture goes on, as the capture's mode and the
  // calling thread's mode say (cuThreadExchangeStreamCaptureMode).
  LMC_HOST_EXPORT void checkSafe();
  // Exchanges the calling thread's mode.
  static CUstreamCaptureMode exchangeMode(CUstreamCaptureMode mode);

  CUgraphExec instantiate(CUgraph graph, bool nodesHavePriorities);
  void launch(CUgraphExec exec, CUstream stream);
  // Fails if a graph or a queued command uses code of the module.
  void checkModuleUnused(const void *module) const;
  // Returns the name of a command of a graph that uses the module, or the communicator; "": none.
  std::string userOf(const void *module) const;

private:
  [[noreturn]] void invalidate(Capture &capture, CUresult code);
  void finish(Capture &capture);

  std::vector<std::shared_ptr<Capture>> ongoing;
};

} // namespace lmc::hostdriver
