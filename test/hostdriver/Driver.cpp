#include "test/hostdriver/Driver.h"
#include "ground/support/File.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

namespace lmc::hostdriver {

thread_local bool contextIsCurrent = false;

static std::unique_ptr<Driver> &instance() {
  static std::unique_ptr<Driver> instance = std::make_unique<Driver>();
  return instance;
}

Driver &driver() { return *instance(); }

// Held while the driver is replaced, and by the only thread that does not belong to the program.
static std::mutex replacement;

void Driver::reset() {
  std::lock_guard lock(replacement);
  instance().reset(); // writes the report before the environment is read
  hostility() = Hostility();
  instance() = std::make_unique<Driver>();
  contextIsCurrent = false;
}

void Driver::note(const std::string &text) {
  std::fprintf(stderr, "host driver: %s\n", text.c_str());
}

void Driver::violation(const std::string &text) {
  note(text);
  violations.push_back(text);
}

CUresult Driver::call(const char *name, Kind kind, const std::function<void()> &body) {
  const CUresult result = callLocked(name, kind, body);
  bool executed = false;
  while (hostility().queue > 0 && isFull(executed))
    std::this_thread::sleep_for(std::chrono::microseconds(executed ? 20 : 200));
  return result;
}

// Returns true if too many commands are queued. Then it executes one of them; `executed` is false
// if none can be.
bool Driver::isFull(bool &executed) {
  std::lock_guard lock(mutex);
  if (streams.sticky != CUDA_SUCCESS || streams.pendingCommands() <= hostility().queue)
    return false;
  executed = streams.advance();
  return true;
}

CUresult Driver::callLocked(const char *name, Kind kind, const std::function<void()> &body) {
  std::lock_guard lock(mutex);
  failing = hostility().failsCall(name);
  if (failing)
    note(fmt::format("call {}, {}, fails as the environment asks", hostility().calls.size(), name));
  const bool releases = kind == Kind::Release || kind == Kind::Leave;
  if (failing && !releases)
    return kind == Kind::Allocate ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
  try {
    if (!initialized && kind != Kind::Start)
      refuse(CUDA_ERROR_NOT_INITIALIZED);
    const bool needsContext = kind == Kind::Call || kind == Kind::Allocate || kind == Kind::Release;
    if (needsContext && (!contexts || !contextIsCurrent))
      refuse(CUDA_ERROR_INVALID_CONTEXT);
    if (streams.sticky != CUDA_SUCCESS && kind != Kind::Start && !releases)
      refuse(streams.sticky);
    body();
  } catch (const Failure &failure) {
    if (!failure.text.empty())
      violation(fmt::format("{}: {}", name, failure.text));
    return failure.code;
  }
  return failing ? CUDA_ERROR_UNKNOWN : releases ? streams.sticky : CUDA_SUCCESS;
}

bool Driver::advance() {
  std::lock_guard alive(replacement);
  std::lock_guard lock(driver().mutex);
  return driver().streams.advance();
}

bool Driver::isInGraph(const void *communicator) {
  std::lock_guard lock(mutex);
  return !graphs.userOf(communicator).empty();
}

bool Driver::hasCollective() {
  std::lock_guard lock(mutex);
  return streams.sticky == CUDA_SUCCESS && streams.hasCollective();
}

Driver::~Driver() {
  if (hostility().report.empty())
    return;
  nlohmann::json leaks = {{"device_memory", memory.count(false)},
                          {"pinned_memory", memory.count(true)},
                          {"streams", streams.streams.size()},
                          {"events", streams.events.size()},
                          {"graphs", graphs.graphs.size()},
                          {"graph_execs", graphs.execs.size()},
                          {"modules", modules.size()},
                          {"contexts", contexts}};
  for (const auto &[kind, count] : libraryObjects)
    leaks[kind] = count;
  nlohmann::json report = {{"calls", hostility().calls.size()},
                           {"names", hostility().calls},
                           {"commands", hostility().commands},
                           {"pending", streams.pendingCommands()},
                           {"pinned_at_launch", pinnedAtLaunch},
                           {"patient_collectives", patientCollectives},
                           {"takers", memory.mostTakers()},
                           {"leaks", leaks},
                           {"violations", violations}};
  if (auto written = writeTextFile(hostility().report, report.dump(2) + "\n"); !written)
    note(written.error().message);
}

} // namespace lmc::hostdriver
