#include "test/hostdriver/Collectives.h"
#include "test/hostdriver/Devices.h"
#include "test/hostdriver/Driver.h"

namespace lmc::hostdriver {

void submit(const Collective &collective, CUstream stream) {
  if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
    broken(CUDA_ERROR_INVALID_VALUE, "a collective is on the legacy stream");
  driver().streams.streams.check(stream);
  const Access x{collective.x, collective.xBytes, false}, d{collective.d, collective.dBytes, true};
  // Where the operand and the result of each kind lie if it runs in place.
  const bool gathers = collective.kind == plan::CollectiveKind::AllGather;
  const bool scatters = collective.kind == plan::CollectiveKind::ReduceScatter;
  const uint64_t xInPlace = d.begin + (gathers ? collective.rank * x.run : 0),
                 dInPlace = x.begin + (scatters ? collective.rank * d.run : 0);
  if (mayOverlap(x, d) && (scatters ? d.begin != dInPlace : x.begin != xInPlace))
    broken(CUDA_ERROR_INVALID_VALUE, "{}: the operand overlaps the result, and is not in place",
           plan::EnumNameCollectiveKind(collective.kind));
  const std::string name = driver().plan.findCollective(collective.kind, x, d);
  driver().memory.require(x, false, name);
  driver().memory.require(d, false, name);
  if (stream->capture && !collective.mayBeCaptured)
    broken(kRuleBroken,
           "{} is captured before its communicator has run one of its kind and size: it connects",
           name);
  if (stream->priority == 0)
    ++driver().patientCollectives;
  auto work = std::make_shared<Work>();
  work->name = std::make_shared<const std::string>(name);
  work->accesses = {d, {kOrderOfCollectives, 1, true}};
  if (collective.x != collective.d)
    work->accesses.push_back(x);
  work->module = collective.communicator;
  const void *from = Memory::host(x.begin);
  void *to = Memory::host(d.begin);
  work->ready = [from, ready = collective.ready] { return ready(from); };
  work->execute = [to, run = collective.run] { run(to); };
  work->stopped = collective.stopped;
  driver().graphs.submit(stream, std::move(work));
}

std::string graphOf(const void *communicator) { return driver().graphs.userOf(communicator); }

std::string runningCollective() {
  const Streams &streams = driver().streams;
  return streams.sticky == CUDA_SUCCESS ? streams.collective() : "";
}

bool isCaptured(CUstream stream) { return driver().streams.streams.has(stream) && stream->capture; }

void checkSafe() { driver().graphs.checkSafe(); }

void checkUnused(const void *communicator) { driver().graphs.checkModuleUnused(communicator); }

int deviceOfMachine() {
  return hostility().devices > 1 ? visibleDevices()[size_t(driver().device)] : -1;
}

void countLibraryObject(const char *kind, int change) { driver().libraryObjects[kind] += change; }

} // namespace lmc::hostdriver
