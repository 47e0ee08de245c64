// Streams, events, and the scheduler that executes what streams hold.
//
// Nothing is executed when it is enqueued. When the host waits or asks, the scheduler executes
// commands at the heads of streams in a random order that LMC_HOST_SEED decides: sometimes only
// what the host waits for, sometimes anything, and copies as late as it can.
#pragma once

#include "test/hostdriver/Clocks.h"
#include "test/hostdriver/Hostility.h"
#include "test/hostdriver/Registry.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmc::hostdriver {

// A command: its name in errors, the bytes that it accesses, and what it does.
struct Work {
  std::shared_ptr<const std::string> name;
  std::vector<Access> accesses;
  // Of the allocations that hold the accesses, at the time of a capture.
  std::vector<uint64_t> allocations;
  std::function<void()> execute; // throws a Failure if the command turns out to be wrong
  bool isCopy = false;
  double microseconds = 1;      // on the virtual clock that events read
  const void *module = nullptr; // the module whose code it is, or the communicator
  // Says whether the command can be executed, when all before it have been: a collective waits for
  // other ranks. Null: it can.
  std::function<bool()> ready;
  // Of a collective: says whether its communicator was aborted, so that it waits for nobody.
  std::function<bool()> stopped;
};

// A byte that every collective writes, so that two of them that no order joins are a race: ranks
// that run collectives in different orders wait for each other for ever.
inline constexpr uint64_t kOrderOfCollectives = 1;
using WorkPtr = std::shared_ptr<const Work>;

// One cuEventRecord, or the place in a stream that a wait of the host is for.
struct Mark {
  CUstream stream = nullptr;
  Clock clock;
  bool done = false;
  double time = 0; // of the virtual clock, in microseconds, once done
};
using MarkPtr = std::shared_ptr<Mark>;

// A command that waits for its execution. If it reads pinned memory that nothing else in a queue
// writes, `pinnedHash` is the hash of those bytes when it was enqueued: they must not change.
struct Pending {
  WorkPtr work;
  bool readsPinned = false;
  uint64_t pinnedHash = 0;
};

// A node of a graph. It is executed after the nodes `after`, which stand before it in the graph.
// `chain` is the stream of the capture that made the node.
struct Node {
  WorkPtr work;
  std::vector<uint32_t> after;
  uint32_t chain = 0;
};

// The nodes of one launch of a graph that have not been executed.
struct GraphRun {
  std::shared_ptr<const std::vector<Node>> nodes;
  std::vector<Pending> pending; // per node
  std::vector<bool> done;
  uint32_t left = 0;
};

struct Item { // of a queue; one of the members is set
  Pending command;
  MarkPtr record, wait;
  std::shared_ptr<GraphRun> graph;
};

struct Capture; // Graphs.h

} // namespace lmc::hostdriver

struct CUstream_st {
  uint32_t number = 0; // of all streams ever created, from 1
  uint32_t line = 0;   // of the vector clocks
  int priority = 0;    // 0: the least; negative ones go first
  lmc::hostdriver::Clock clock;
  std::deque<lmc::hostdriver::Item> queue;
  // While the stream is captured, `capture` is the capture, and the next node comes after the nodes
  // `tail`.
  std::shared_ptr<lmc::hostdriver::Capture> capture;
  std::vector<uint32_t> tail;
};

struct CUevent_st {
  unsigned flags = 0;
  lmc::hostdriver::MarkPtr mark; // the last record outside of a capture; null: none
  // The capture and the nodes of the last record, if that was in a capture.
  std::shared_ptr<lmc::hostdriver::Capture> capture;
  std::vector<uint32_t> nodes;
};

namespace lmc::hostdriver {

class Streams {
public:
  Registry<CUstream_st> streams;
  Registry<CUevent_st> events;

  CUstream create(int priority);
  void destroy(CUstream stream); // executes what it holds

  uint32_t newLine() { return lines++; }

  // Appends a command to a stream that is not being captured.
  void enqueue(CUstream stream, WorkPtr work);
  MarkPtr record(CUstream stream);
  void waitFor(CUstream stream, const MarkPtr &mark);
  // Appends a launch of `nodes`; `lines` are the lines of their chains.
  void enqueueGraph(CUstream stream, const std::shared_ptr<const std::vector<Node>> &nodes,
                    const std::vector<uint32_t> &lines);

  // Executes commands until `mark` is done, because the host waits for it.
  void finish(const MarkPtr &mark);
  // Executes a command, if one can be, as a device does that nobody waits for. Returns false if
  // none can be.
  bool advance();
  // Executes a few commands or none, because the host asks for `mark`. Returns true if it is done.
  bool poll(const MarkPtr &mark);

  // Forgets bytes that are freed. Fails if the host does not know that all commands that use them
  // are complete; the error begins with `action`.
  void release(const Access &bytes, const std::string &action);
  // Fails if the host does not know that all launches of the module's code are complete.
  void checkUnused(const void *module) const;
  size_t pendingCommands() const;
  // Returns true if a collective is queued that may wait for other ranks.
  bool hasCollective() const;
  // Returns the name of such a collective; "": there is none.
  std::string collective() const;
  // Fails in a call that may wait for the device if there is one: a rank that waits does not take
  // part in the next collective. The error begins with `action`.
  LMC_HOST_EXPORT void checkNoCollective(const char *action) const;

  // The error that a faulted command left behind. Every later call returns it.
  CUresult sticky = CUDA_SUCCESS;

private:
  // Adds to `needed` how many items at the heads of streams must be executed before `mark` is done.
  void need(const MarkPtr &mark, std::vector<std::pair<CUstream, size_t>> &needed) const;
  bool executeOne(const std::vector<std::pair<CUstream, size_t>> *only);
  void execute(const Pending &pending);
  void execute(const MarkPtr &mark); // until it is done or a command fails
  Pending pendingOf(const WorkPtr &work) const;
  void poisonTargets(const Work &work);
  void addToHistory(const Work &work, uint32_t line, const Clock &clock);
  // Returns true if a command that has not been executed satisfies `test`.
  bool anyPending(const std::function<bool(const Work &)> &test) const;
  void hostWaited(const Mark &mark) { host.join(mark.clock); }

  Random random{hostility().seed};
  bool waitsForRanks = false; // the last choice has left a command out because of other ranks
  AccessHistory history;
  Clock host;                            // what the host has waited for
  std::map<const void *, Clock> lastUse; // of each module
  uint32_t lines = 0, created = 0;
  double now = 0; // the virtual clock, in microseconds
};

} // namespace lmc::hostdriver
