#include "test/hostdriver/Streams.h"
#include "test/hostdriver/Driver.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <xxhash.h>

namespace lmc::hostdriver {
namespace {

bool isPinned(const Access &access) {
  const Memory::Allocation *at = driver().memory.holding(access.begin);
  return at && at->pinned;
}

// Returns the hash of the pinned bytes that the command reads.
uint64_t hashOfPinned(const Work &work) {
  uint64_t hash = 0;
  for (const Access &access : work.accesses)
    if (!access.write && isPinned(access))
      for (uint64_t row = 0; row < access.rows; ++row)
        hash ^= XXH3_64bits_withSeed(Memory::host(access.begin + row * access.pitch), access.run,
                                     row + 1);
  return hash;
}

// Calls `visit` with every command of the item that has not been executed, until it returns true.
bool visitPending(const Item &item, const std::function<bool(const Work &)> &visit) {
  if (item.command.work)
    return visit(*item.command.work);
  if (item.graph)
    for (size_t i = 0; i < item.graph->done.size(); ++i)
      if (!item.graph->done[i] && visit(*(*item.graph->nodes)[i].work))
        return true;
  return false;
}

// Returns the nodes of a run that can be executed now.
std::vector<size_t> readyNodes(const GraphRun &run) {
  std::vector<size_t> ready;
  for (size_t i = 0; i < run.done.size(); ++i) {
    const auto &after = (*run.nodes)[i].after;
    if (!run.done[i] &&
        std::all_of(after.begin(), after.end(), [&](uint32_t n) { return run.done[n]; }))
      ready.push_back(i);
  }
  return ready;
}

} // namespace

CUstream Streams::create(int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = ++created;
  stream->line = newLine();
  stream->priority = priority;
  return streams.add(std::move(stream));
}

// As with CUDA, the call does not tell the host that the stream's commands are complete.
void Streams::destroy(CUstream stream) {
  execute(record(stream));
  streams.remove(stream);
}

bool Streams::anyPending(const std::function<bool(const Work &)> &test) const {
  for (const auto &stream : streams)
    for (const Item &item : stream->queue)
      if (visitPending(item, test))
        return true;
  return false;
}

void Streams::release(const Access &bytes, const std::string &action) {
  history.release(bytes, host, action, sticky == CUDA_SUCCESS);
}

void Streams::checkUnused(const void *module) const {
  auto last = lastUse.find(module);
  if (last != lastUse.end() && sticky == CUDA_SUCCESS && !host.includes(last->second))
    broken(kRuleBroken, "a module is unloaded before all launches of it are known to be complete");
}

size_t Streams::pendingCommands() const {
  size_t count = 0;
  anyPending([&](const Work &) { return ++count == 0; });
  return count;
}

bool Streams::hasCollective() const { return !collective().empty(); }

std::string Streams::collective() const {
  std::string name;
  anyPending([&](const Work &work) {
    if (work.ready && !work.stopped())
      name = *work.name;
    return !name.empty();
  });
  return name;
}

void Streams::checkNoCollective(const char *action) const {
  if (sticky != CUDA_SUCCESS)
    return;
  if (const std::string name = collective(); !name.empty())
    broken(kRuleBroken, "{} while '{}' may run: the call may wait for the device", action, name);
}

// Pinned bytes that a queued command writes will change without the host, so they have no hash.
Pending Streams::pendingOf(const WorkPtr &work) const {
  Pending pending{work};
  for (const Access &read : work->accesses) {
    if (read.write || !isPinned(read))
      continue;
    pending.readsPinned = !anyPending([&](const Work &other) {
      return std::any_of(other.accesses.begin(), other.accesses.end(), [&](const Access &access) {
        return access.write && mayOverlap(access, read);
      });
    });
  }
  if (pending.readsPinned)
    pending.pinnedHash = hashOfPinned(*work);
  return pending;
}

static bool uses(const Work &work, const Access &bytes) {
  return std::any_of(work.accesses.begin(), work.accesses.end(),
                     [&](const Access &access) { return mayOverlap(access, bytes); });
}

// The host may not look at pinned bytes that a command will write before it knows that the command
// is complete. Until then the bytes hold garbage, unless another queued command uses them.
void Streams::poisonTargets(const Work &work) {
  for (const Access &access : work.accesses)
    if (access.write && isPinned(access) &&
        !anyPending([&](const Work &other) { return &other != &work && uses(other, access); }))
      for (uint64_t row = 0; row < access.rows; ++row)
        simt::fillGarbage(Memory::host(access.begin + row * access.pitch), access.run,
                          hostility().seed, access.begin);
}

void Streams::enqueue(CUstream stream, WorkPtr work) {
  stream->clock.join(host);
  stream->clock.tick(stream->line);
  addToHistory(*work, stream->line, stream->clock);
  stream->queue.push_back({pendingOf(work), nullptr, nullptr, nullptr});
  poisonTargets(*work);
}

void Streams::addToHistory(const Work &work, uint32_t line, const Clock &clock) {
  history.add(work.name, work.accesses, line, clock);
  if (work.module)
    lastUse[work.module].join(clock);
}

MarkPtr Streams::record(CUstream stream) {
  auto mark = std::make_shared<Mark>();
  mark->stream = stream;
  stream->clock.join(host);
  mark->clock = stream->clock;
  stream->queue.push_back({{}, mark, nullptr, nullptr});
  return mark;
}

void Streams::waitFor(CUstream stream, const MarkPtr &mark) {
  stream->clock.join(mark->clock);
  stream->queue.push_back({{}, nullptr, mark, nullptr});
}

void Streams::enqueueGraph(CUstream stream, const std::shared_ptr<const std::vector<Node>> &nodes,
                           const std::vector<uint32_t> &lines) {
  if (nodes->empty())
    return;
  stream->clock.join(host);
  std::vector<Clock> clocks;
  for (const Node &node : *nodes) {
    if (node.work->allocations != driver().memory.numbersOf(node.work->accesses))
      broken(CUDA_ERROR_INVALID_VALUE, "a graph is launched whose '{}' uses memory that was freed",
             *node.work->name);
    Clock clock = stream->clock;
    for (uint32_t before : node.after)
      clock.join(clocks[before]);
    clock.tick(lines[node.chain]);
    addToHistory(*node.work, lines[node.chain], clock);
    clocks.push_back(clock);
  }
  for (const Clock &clock : clocks)
    stream->clock.join(clock);
  auto run = std::make_shared<GraphRun>();
  run->nodes = nodes;
  run->done.assign(nodes->size(), false);
  run->left = uint32_t(nodes->size());
  stream->queue.push_back({{}, nullptr, nullptr, run});
  for (const Node &node : *nodes) {
    run->pending.push_back(pendingOf(node.work));
    poisonTargets(*node.work);
  }
}

void Streams::need(const MarkPtr &mark, std::vector<std::pair<CUstream, size_t>> &needed) const {
  if (mark->done)
    return;
  auto entry = std::find_if(needed.begin(), needed.end(),
                            [&](const auto &pair) { return pair.first == mark->stream; });
  if (entry == needed.end())
    entry = needed.insert(needed.end(), {mark->stream, 0});
  const auto &queue = mark->stream->queue;
  size_t end = 0;
  while (end < queue.size() && queue[end].record != mark)
    ++end;
  const size_t from = entry->second;
  if (end + 1 <= from)
    return;
  entry->second = end + 1;
  for (size_t i = from; i < end; ++i)
    if (queue[i].wait)
      need(queue[i].wait, needed);
}

void Streams::execute(const Pending &pending) {
  const Work &work = *pending.work;
  if (pending.readsPinned && hashOfPinned(work) != pending.pinnedHash)
    broken(kRuleBroken, "the host wrote into the pinned memory of '{}' before that was complete",
           *work.name);
  if (hostility().faultsCommand()) {
    sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    driver().note(fmt::format("a fault was injected into '{}'", *work.name));
    return;
  }
  work.execute();
  now += work.microseconds;
}

// Executes one item at the head of a stream, which is chosen at random, and with `only` among the
// needed items. Returns false if no item can be executed.
bool Streams::executeOne(const std::vector<std::pair<CUstream, size_t>> *only) {
  struct Choice {
    CUstream stream;
    size_t node;
  };
  std::vector<Choice> others, copies;
  waitsForRanks = false;
  auto offer = [&](const Work &work, Choice choice) {
    if (work.ready && !work.ready()) {
      waitsForRanks = true;
      return;
    }
    (work.isCopy ? copies : others).push_back(choice);
  };
  for (const auto &owner : streams) {
    CUstream stream = owner.get();
    if (only && std::none_of(only->begin(), only->end(), [&](const auto &needed) {
          return needed.first == stream && needed.second > 0;
        }))
      continue;
    while (!stream->queue.empty() && stream->queue.front().wait && stream->queue.front().wait->done)
      stream->queue.pop_front();
    if (stream->queue.empty() || stream->queue.front().wait)
      continue;
    const Item &head = stream->queue.front();
    if (head.command.work)
      offer(*head.command.work, {stream, 0});
    else if (head.graph)
      for (size_t node : readyNodes(*head.graph))
        offer(*(*head.graph->nodes)[node].work, {stream, node});
    else
      others.push_back({stream, 0});
  }
  const auto &choices = others.empty() ? copies : others;
  if (choices.empty())
    return false;
  const auto [stream, node] = choices[random.below(uint32_t(choices.size()))];
  Item &head = stream->queue.front();
  try {
    if (head.command.work)
      execute(head.command);
    else if (head.graph) {
      execute(head.graph->pending[node]);
      head.graph->done[node] = true;
      --head.graph->left;
    } else {
      head.record->done = true;
      head.record->time = now;
    }
  } catch (const Failure &failure) {
    sticky = failure.code == CUDA_SUCCESS ? CUDA_ERROR_LAUNCH_FAILED : failure.code;
    driver().violation(failure.text);
  }
  if (sticky == CUDA_SUCCESS && !(head.graph && head.graph->left))
    stream->queue.pop_front();
  return true;
}

void Streams::execute(const MarkPtr &mark) {
  constexpr auto kPause = std::chrono::microseconds(100);
  constexpr int kMostPauses = 600'000; // a minute
  int pauses = 0;
  while (!mark->done && sticky == CUDA_SUCCESS) {
    std::vector<std::pair<CUstream, size_t>> needed;
    need(mark, needed);
    if (executeOne(random.below(2) ? &needed : nullptr) || executeOne(&needed) || mark->done)
      pauses = 0;
    else if (!waitsForRanks)
      broken(CUDA_ERROR_LAUNCH_TIMEOUT, "streams wait for each other");
    else if (++pauses > kMostPauses)
      broken(CUDA_ERROR_LAUNCH_TIMEOUT, "a collective waits for other ranks, which do not come");
    else
      std::this_thread::sleep_for(kPause);
  }
}

bool Streams::advance() { return sticky == CUDA_SUCCESS && executeOne(nullptr); }

void Streams::finish(const MarkPtr &mark) {
  execute(mark);
  if (sticky != CUDA_SUCCESS)
    refuse(sticky);
  hostWaited(*mark);
}

bool Streams::poll(const MarkPtr &mark) {
  for (uint32_t left = random.below(2) * (1 + random.below(32)); left && sticky == CUDA_SUCCESS;
       --left)
    if (!executeOne(nullptr))
      break;
  if (sticky != CUDA_SUCCESS)
    refuse(sticky);
  if (mark->done)
    hostWaited(*mark);
  return mark->done;
}

} // namespace lmc::hostdriver
