#include "test/hostdriver/Graphs.h"
#include "test/hostdriver/Driver.h"

namespace lmc::hostdriver {
namespace {

thread_local CUstreamCaptureMode threadMode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void unite(std::vector<uint32_t> &nodes, const std::vector<uint32_t> &more) {
  for (uint32_t node : more)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end())
      nodes.push_back(node);
}

// Returns which nodes come before those in `nodes`, with these.
std::vector<bool> upTo(const std::vector<Node> &graph, const std::vector<uint32_t> &nodes) {
  std::vector<bool> reached(graph.size());
  for (uint32_t node : nodes)
    reached[node] = true;
  for (size_t i = graph.size(); i-- > 0;)
    if (reached[i])
      for (uint32_t before : graph[i].after)
        reached[before] = true;
  return reached;
}

} // namespace

void Graphs::invalidate(Capture &capture, CUresult code) {
  capture.invalid = true;
  refuse(code);
}

void Graphs::begin(CUstream stream, CUstreamCaptureMode mode) {
  if (stream->capture)
    invalidate(*stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams = {stream};
  stream->capture = capture;
  stream->tail.clear();
  ongoing.push_back(capture);
}

void Graphs::finish(Capture &capture) {
  capture.ended = true;
  for (CUstream stream : capture.streams)
    if (driver().streams.streams.has(stream))
      stream->capture = nullptr;
  std::erase_if(ongoing, [&](const auto &other) { return other.get() == &capture; });
}

CUgraph Graphs::end(CUstream stream) {
  if (!stream->capture)
    refuse(CUDA_ERROR_ILLEGAL_STATE);
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture->streams.front() != stream)
    invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id())
    invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  const std::vector<bool> joined = upTo(capture->nodes, stream->tail);
  finish(*capture);
  if (capture->invalid)
    refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (std::find(joined.begin(), joined.end(), false) != joined.end())
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  auto graph = std::make_unique<CUgraph_st>();
  graph->chains = uint32_t(capture->streams.size());
  graph->nodes = std::make_shared<const std::vector<Node>>(std::move(capture->nodes));
  return graphs.add(std::move(graph));
}

void Graphs::abandon(CUstream stream) {
  if (!stream->capture)
    return;
  std::shared_ptr<Capture> capture = stream->capture;
  capture->invalid = true;
  if (capture->streams.front() == stream)
    finish(*capture);
}

void Graphs::submit(CUstream stream, WorkPtr work) {
  if (!stream->capture)
    return driver().streams.enqueue(stream, std::move(work));
  Capture &capture = *stream->capture;
  if (capture.invalid)
    refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  auto captured = std::make_shared<Work>(*work);
  captured->allocations = driver().memory.numbersOf(work->accesses);
  const auto chain = std::find(capture.streams.begin(), capture.streams.end(), stream);
  const uint32_t number = uint32_t(capture.nodes.size());
  capture.nodes.push_back(
      {std::move(captured), stream->tail, uint32_t(chain - capture.streams.begin())});
  stream->tail = {number};
}

void Graphs::record(CUevent event, CUstream stream) {
  event->mark = nullptr;
  event->capture = nullptr;
  if (!stream->capture) {
    event->mark = driver().streams.record(stream);
    return;
  }
  if (stream->capture->invalid)
    refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  event->capture = stream->capture;
  event->nodes = stream->tail;
}

void Graphs::wait(CUstream stream, CUevent event) {
  if (!event->capture) {
    if (stream->capture)
      invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (event->mark)
      driver().streams.waitFor(stream, event->mark);
    return;
  }
  Capture &capture = *event->capture;
  if (stream->capture && stream->capture != event->capture) {
    capture.invalid = true;
    invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (capture.ended)
    refuse(CUDA_ERROR_CAPTURED_EVENT);
  if (capture.invalid)
    refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (!stream->capture) {
    stream->capture = event->capture;
    stream->tail.clear();
    capture.streams.push_back(stream);
  }
  unite(stream->tail, event->nodes);
}

void Graphs::checkNotCapturing(CUstream stream) {
  if (stream->capture)
    invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void Graphs::checkNotCaptured(CUevent event) {
  if (event->capture)
    invalidate(*event->capture, CUDA_ERROR_CAPTURED_EVENT);
}

void Graphs::checkSafe() {
  bool safe = threadMode == CU_STREAM_CAPTURE_MODE_RELAXED;
  if (safe)
    return;
  safe = true;
  for (const auto &capture : ongoing) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
            : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  threadMode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
      capture->invalid = true;
      safe = false;
    }
  }
  if (!safe)
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUstreamCaptureMode Graphs::exchangeMode(CUstreamCaptureMode mode) {
  return std::exchange(threadMode, mode);
}

CUgraphExec Graphs::instantiate(CUgraph graph, bool nodesHavePriorities) {
  auto exec = std::make_unique<CUgraphExec_st>();
  exec->nodesHavePriorities = nodesHavePriorities;
  exec->nodes = graph->nodes;
  for (uint32_t chain = 0; chain < graph->chains; ++chain)
    exec->lines.push_back(driver().streams.newLine());
  return execs.add(std::move(exec));
}

void Graphs::launch(CUgraphExec exec, CUstream stream) {
  if (stream->capture)
    invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Streams &streams = driver().streams;
  if (!exec->nodesHavePriorities)
    for (const Node &node : *exec->nodes)
      driver().patientCollectives += node.work->ready != nullptr;
  if (exec->lastLaunch)
    streams.waitFor(stream, exec->lastLaunch);
  streams.enqueueGraph(stream, exec->nodes, exec->lines);
  exec->lastLaunch = streams.record(stream);
}

std::string Graphs::userOf(const void *module) const {
  auto find = [&](const std::vector<Node> &nodes) -> std::string {
    for (const Node &node : nodes)
      if (node.work->module == module)
        return *node.work->name;
    return "";
  };
  for (const auto &exec : execs)
    if (const std::string name = find(*exec->nodes); !name.empty())
      return name;
  for (const auto &graph : graphs)
    if (const std::string name = find(*graph->nodes); !name.empty())
      return name;
  return "";
}

void Graphs::checkModuleUnused(const void *module) const {
  driver().streams.checkUnused(module);
  if (const std::string user = userOf(module); !user.empty())
    broken(kRuleBroken, "a module is unloaded before the graph of '{}' is destroyed", user);
}

} // namespace lmc::hostdriver
