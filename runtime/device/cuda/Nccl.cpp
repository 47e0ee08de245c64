// Collectives by NCCL. NCCL requires the same order of collectives on all ranks, so the collectives
// of all axes run on one stream.
#include "runtime/device/cuda/Collectives.h"

#include "ground/support/Places.h"
#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <future>
#include <thread>

namespace lmc::cuda {
namespace {

// The oldest release in which one communicator may have collectives inside and outside of CUDA
// graphs (environment variable NCCL_GRAPH_MIXING_SUPPORT).
constexpr int kOldest = NCCL_VERSION(2, 13, 4);

// The maximum time until all ranks have joined a communicator.
constexpr std::chrono::seconds kJoin{60};

// After another rank has left the run, the collectives in which it took part may still end on this
// rank. They must end within this time.
constexpr std::chrono::seconds kGrace{1};

std::string versionText(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

struct Library {
#define LMC_NCCL_FUNCTION(name) decltype(&::name) name = nullptr;
#include "runtime/device/cuda/NcclFunctions.def"
#undef LMC_NCCL_FUNCTION

  Result<void> check(ncclResult_t result, std::string_view doing, ncclComm_t of = nullptr) const {
    if (result == ncclSuccess)
      return {};
    const char *detail = ncclGetLastError(of);
    return machineError("NCCL cannot {}: {}{}", doing, ncclGetErrorString(result),
                        detail && *detail ? fmt::format(" ({})", detail) : "");
  }
};

Result<Library> openLibrary() {
  std::string problem;
  void *opened = cuda::openLibrary(
      "LMC_NCCL", {fileOfPythonPackage("nvidia/nccl/lib/libnccl.so.2"), "libnccl.so.2"}, problem);
  if (!opened)
    return machineError(
        "the plan is for several GPUs, which NCCL connects, and it cannot be opened "
        "({}); install it (pip install nvidia-nccl-cu13), name it with LMC_NCCL, or give "
        "--collectives=host, which is slower",
        problem);
  Library library;
#define LMC_NCCL_FUNCTION(name)                                                                    \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(opened, #name));                 \
  if (!library.name)                                                                               \
    return Error{"the library of NCCL has no " #name ": install NCCL " + versionText(kOldest) +    \
                     " or newer",                                                                  \
                 ExitCode::Failure};
#include "runtime/device/cuda/NcclFunctions.def"
#undef LMC_NCCL_FUNCTION
  int version = 0;
  LMC_TRY(library.check(library.ncclGetVersion(&version), "say its version"));
  if (version < kOldest || version / 10000 != NCCL_MAJOR)
    return machineError("NCCL {} is installed, and lmc-run needs {} or a newer release of NCCL {}",
                        versionText(version), versionText(kOldest), NCCL_MAJOR);
  return library;
}

ncclDataType_t ncclTypeOf(plan::DType dtype) {
  return dtype == plan::DType::BF16  ? ncclBfloat16
         : dtype == plan::DType::F16 ? ncclFloat16
         : dtype == plan::DType::F64 ? ncclFloat64
                                     : ncclFloat32;
}

class NcclCollectives final : public Collectives {
public:
  NcclCollectives(const Driver &driver, const Gpu &gpu, World &world, Library library,
                  std::function<void()> dropGraphs)
      : driver(driver), gpu(gpu), world(world), library(library),
        dropGraphs(std::move(dropGraphs)) {}
  ~NcclCollectives() override {
    for (ncclComm_t &comm : comms)
      if (comm && !aborted)
        (void)library.ncclCommDestroy(comm);
  }

  Result<void> prepare() {
    // With the highest priority, a collective starts before other waiting kernels.
    CUstream made = nullptr;
    int least = 0, greatest = 0;
    LMC_CUDA(driver, cuCtxGetStreamPriorityRange(&least, &greatest), "create a stream");
    LMC_CUDA(driver, cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, greatest),
             "create a stream");
    own = Stream(driver, made);
    return makeEvent(driver, /*timed=*/false, fork);
  }

  Result<void> connect(plan::Axis axis) {
    Communicator &group = world.along(axis);
    struct {
      ncclUniqueId id;
      ncclResult_t result;
    } name{};
    if (group.position() == 0)
      name.result = library.ncclGetUniqueId(&name.id);
    LMC_TRY(group.broadcast(&name, sizeof name, 0));
    LMC_TRY(library.check(name.result, "name a communicator"));
    // NCCL waits for ever for a failed rank. So another thread calls it; this one can give up.
    struct Made {
      ncclComm_t comm = nullptr;
      Result<void> result;
    };
    std::promise<Made> promise;
    std::future<Made> made = promise.get_future();
    std::thread([promise = std::move(promise), library = library, &gpu = gpu, id = name.id,
                 size = group.size(), position = group.position()]() mutable {
      Made made;
      made.result = gpu.use();
      if (made.result)
        made.result = library.check(library.ncclCommInitRank(&made.comm, size, id, position),
                                    "connect the GPUs");
      promise.set_value(std::move(made));
    }).detach();
    if (made.wait_for(kJoin) != std::future_status::ready)
      return Error{
          fmt::format("the {} ranks along the axis '{}' have not connected their GPUs by NCCL "
                      "in {} s; the errors of the others, or NCCL_DEBUG=INFO, tell why",
                      group.size(), plan::EnumNameAxis(axis), kJoin.count()),
          ExitCode::RankFailed};
    Made done = made.get();
    at(axis) = done.comm;
    return done.result;
  }

  Result<void> start(const CollectiveCall &call, CUstream stream, CUevent ended) override {
    const ncclComm_t comm = at(call.axis);
    if (aborted || !comm)
      return Error{"the GPUs are no longer connected", ExitCode::RankFailed};
    LMC_CUDA(driver, cuEventRecord(fork.get(), stream), "start a collective");
    LMC_CUDA(driver, cuStreamWaitEvent(own.get(), fork.get(), 0), "start a collective");
    const auto *x = reinterpret_cast<const void *>(call.x);
    auto *d = reinterpret_cast<void *>(call.d);
    const uint64_t elements = call.dBytes / byteWidth(call.dtype);
    const ncclDataType_t type = ncclTypeOf(call.dtype);
    switch (call.kind) {
    case plan::CollectiveKind::AllGather: // NCCL copies bytes, so any dtype works
      LMC_TRY(library.check(library.ncclAllGather(x, d, call.xBytes, ncclInt8, comm, own.get()),
                            "gather", comm));
      break;
    case plan::CollectiveKind::ReduceScatter:
      LMC_TRY(
          library.check(library.ncclReduceScatter(x, d, elements, type, ncclSum, comm, own.get()),
                        "reduce and scatter", comm));
      break;
    case plan::CollectiveKind::AllReduce:
      LMC_TRY(library.check(library.ncclAllReduce(x, d, elements, type, ncclSum, comm, own.get()),
                            "reduce", comm));
      break;
    }
    LMC_CUDA(driver, cuEventRecord(ended, own.get()), "end a collective");
    return {};
  }

  bool byHost() const override { return false; }
  Result<void> check() override {
    if (aborted)
      return Error{"the GPUs are no longer connected", ExitCode::RankFailed};
    Result<void> found;
    for (ncclComm_t comm : comms) {
      if (!comm)
        continue;
      ncclResult_t result = ncclSuccess;
      found = library.check(library.ncclCommGetAsyncError(comm, &result), "say how it goes", comm);
      if (found && result != ncclInProgress)
        found = library.check(result, "go on with a collective", comm);
      if (!found)
        break;
    }
    if (const std::optional<Error> loss = found ? world.loss() : std::nullopt) {
      const auto now = std::chrono::steady_clock::now();
      if (now - lossSeen.value_or(now) >= kGrace)
        found = *loss;
      lossSeen = lossSeen.value_or(now);
    }
    if (!found)
      abort();
    return found;
  }

  void abort() override {
    if (aborted.exchange(true))
      return;
    // ncclCommAbort stops a communicator's collectives, then waits until no graph contains them. A
    // running graph may contain collectives of several communicators. It can be destroyed only when
    // all are stopped. So other threads abort communicators while this thread destroys the graphs.
    std::vector<std::thread> aborts;
    for (ncclComm_t &comm : comms)
      if (comm)
        aborts.emplace_back([this, ending = std::exchange(comm, nullptr)] {
          (void)gpu.use();
          (void)library.ncclCommAbort(ending);
        });
    dropGraphs();
    for (std::thread &each : aborts)
      each.join();
    (void)driver.cuStreamSynchronize(own.get());
  }

private:
  ncclComm_t &at(plan::Axis axis) { return comms[static_cast<size_t>(axis)]; }

  const Driver &driver;
  const Gpu &gpu;
  World &world;
  const Library library;
  const std::function<void()> dropGraphs;
  std::array<ncclComm_t, 4> comms{}; // indexed by plan::Axis
  std::atomic<bool> aborted = false;
  std::optional<std::chrono::steady_clock::time_point> lossSeen;
  Stream own;
  Event fork; // reached when the commands before a collective are complete
};
} // namespace

Result<std::unique_ptr<Collectives>> openNccl(const Driver &driver, const Gpu &gpu, World &world,
                                              const std::vector<plan::Axis> &axes,
                                              std::function<void()> dropGraphs) {
  std::unique_ptr<NcclCollectives> collectives;
  auto prepare = [&]() -> Result<void> {
    LMC_LET(library, openLibrary());
    collectives =
        std::make_unique<NcclCollectives>(driver, gpu, world, *library, std::move(dropGraphs));
    return collectives->prepare();
  };
  // The ranks connect only if prepare() succeeds on all of them.
  LMC_TRY(allSucceed(world.all(), prepare()));
  for (plan::Axis axis : axes)
    LMC_TRY(collectives->connect(axis));
  return std::unique_ptr<Collectives>(std::move(collectives));
}

Result<LibraryFile> findNccl() {
  LMC_LET(library, openLibrary());
  int version = 0;
  LMC_TRY(library->check(library->ncclGetVersion(&version), "say its version"));
  return LibraryFile{versionText(version),
                     pathOfLibrary(reinterpret_cast<const void *>(library->ncclGetVersion))};
}

} // namespace lmc::cuda
