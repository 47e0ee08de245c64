// The entry points of NCCL. The ranks are processes of this machine. Streams, memory and the plan
// are those of the stand-in for libcuda, which this library links.
//
// As with NCCL, a collective never ends if a rank does not come, until its communicator is aborted.
#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

#include "runtime/comm/RankOrderSum.h"
#include "test/hostdriver/Collectives.h"
#include "test/hostdriver/Driver.h"
#include "test/hostdriver/RankMemory.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>

using namespace lmc::hostdriver;
using lmc::plan::CollectiveKind;
using lmc::plan::DType;

struct ncclComm {
  std::unique_ptr<RankMemory> memory;
  uint64_t shown = 0, finished = 0; // collectives
  std::atomic<bool> aborted = false;
  // The kinds and sizes of collectives that have run. NCCL chooses an algorithm by them, and from
  // 2.22 on connects each algorithm when it is first used.
  std::set<std::pair<CollectiveKind, int>> connected;
};

namespace {

// Collectives that are queued hold the communicator, too.
std::mutex mutex; // of the next
std::vector<std::shared_ptr<ncclComm>> communicators;
std::set<std::pair<std::string, int>> usedIds; // and the ranks that used them

std::shared_ptr<ncclComm> find(ncclComm_t handle) {
  std::lock_guard lock(mutex);
  for (const auto &comm : communicators)
    if (comm.get() == handle)
      return comm;
  broken(CUDA_ERROR_INVALID_HANDLE, "a communicator is used that was never made, or is gone");
}

// Executes what is queued while another rank waits for it, as a GPU does whatever its host does.
class Progress {
public:
  ~Progress() {
    stop = true;
    thread.join();
  }

private:
  void run() {
    while (!stop) {
      bool waited = false;
      {
        std::lock_guard lock(mutex);
        for (const auto &comm : communicators)
          waited |= comm->memory->someoneWaits();
      }
      // Other ranks need the processor while this one waits for them.
      if (!waited || !Driver::advance())
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  std::atomic<bool> stop{false};
  std::thread thread{[this] { run(); }};
};

ncclResult_t resultOf(CUresult result) {
  switch (result) {
  case CUDA_SUCCESS:
    return ncclSuccess;
  case CUDA_ERROR_INVALID_VALUE:
  case CUDA_ERROR_INVALID_HANDLE:
    return ncclInvalidArgument;
  case kRuleBroken:
    return ncclInvalidUsage;
  default:
    return ncclUnhandledCudaError;
  }
}

ncclResult_t call(const char *name, Kind kind, const std::function<void()> &body) {
  return resultOf(driver().call(name, kind, body));
}

uint64_t widthOf(ncclDataType_t type) {
  return type == ncclBfloat16 || type == ncclFloat16 ? 2 : type == ncclFloat64 ? 8 : 4;
}

// Returns the type of a sum. Fails if it is not modelled.
DType summed(ncclDataType_t type, ncclRedOp_t op) {
  if (op != ncclSum)
    broken(CUDA_ERROR_NOT_SUPPORTED, "reduction {} is not modelled", int(op));
  switch (type) {
  case ncclBfloat16:
    return DType::BF16;
  case ncclFloat16:
    return DType::F16;
  case ncclFloat32:
    return DType::F32;
  case ncclFloat64:
    return DType::F64;
  default:
    broken(CUDA_ERROR_NOT_SUPPORTED, "sums of data type {} are not modelled", int(type));
  }
}

// Computes the result of this rank.
void compute(const RankMemory &memory, const Shown &shown, void *d) {
  for (int other = 0; other < memory.ranks; ++other)
    if (const Shown theirs = memory.shownBy(other); theirs != shown)
      broken(kRuleBroken, "rank {} of the communicator runs {}, and rank {} runs {}", memory.rank,
             shown.text(), other, theirs.text());
  if (shown.kind == CollectiveKind::AllGather) {
    for (int other = 0; other < memory.ranks; ++other)
      std::memcpy(static_cast<char *>(d) + uint64_t(other) * shown.inputBytes,
                  memory.inputOf(other), shown.inputBytes);
    return;
  }
  const uint64_t parts = shown.kind == CollectiveKind::ReduceScatter ? uint64_t(memory.ranks) : 1;
  const uint64_t bytes = shown.inputBytes / parts;
  const uint64_t skipped = parts > 1 ? uint64_t(memory.rank) * bytes : 0;
  std::vector<const void *> inputs;
  for (int other = 0; other < memory.ranks; ++other)
    inputs.push_back(static_cast<const char *>(memory.inputOf(other)) + skipped);
  lmc::sumInRankOrder(inputs.data(), memory.ranks, bytes / lmc::byteWidth(shown.dtype), shown.dtype,
                      d);
}

// `bytes` are those of one rank's piece: of the input of AllGather, of the output of ReduceScatter.
ncclResult_t start(const char *name, CollectiveKind kind, const void *x, void *d, uint64_t bytes,
                   const std::function<DType()> &dtypeOf, ncclComm_t handle, cudaStream_t stream) {
  return call(name, Kind::Call, [&] {
    const std::shared_ptr<ncclComm> comm = find(handle);
    const uint64_t all = bytes * uint64_t(comm->memory->ranks);
    const Shown shown{kind, dtypeOf(), kind == CollectiveKind::ReduceScatter ? all : bytes,
                      isCaptured(stream)};
    if (shown.inputBytes > RankMemory::kMostBytes)
      broken(CUDA_ERROR_NOT_SUPPORTED, "{} is too large for the stand-in", shown.text());
    Collective collective;
    collective.kind = kind;
    collective.x = reinterpret_cast<uint64_t>(x);
    collective.d = reinterpret_cast<uint64_t>(d);
    collective.xBytes = shown.inputBytes;
    collective.dBytes = kind == CollectiveKind::AllGather ? all : bytes;
    collective.communicator = handle;
    collective.rank = uint64_t(comm->memory->rank);
    const std::pair<CollectiveKind, int> connection{kind, std::bit_width(shown.inputBytes)};
    collective.mayBeCaptured = comm->connected.contains(connection);
    collective.stopped = [comm] { return comm->aborted.load(); };
    collective.ready = [comm, shown](const void *input) {
      if (comm->aborted)
        return true;
      if (comm->shown == comm->finished && comm->memory->show(comm->shown + 1, shown, input))
        ++comm->shown;
      return comm->shown > comm->finished && comm->memory->allShow(comm->shown);
    };
    collective.run = [comm, shown](void *output) {
      if (comm->aborted)
        return;
      compute(*comm->memory, shown, output);
      comm->memory->finish(++comm->finished);
    };
    submit(collective, stream);
    comm->connected.insert(connection);
  });
}

// NCCL stops what runs, and then waits until no graph has a collective of the communicator. It
// frees memory, too, which may wait for all that the device runs: also for collectives of other
// communicators.
void awaitOthers(ncclComm_t handle) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(hostility().patience);
  while ((driver().isInGraph(handle) || driver().hasCollective()) &&
         std::chrono::steady_clock::now() < end) {
    Driver::advance();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void add(const std::shared_ptr<ncclComm> &comm) {
  std::lock_guard lock(mutex);
  communicators.push_back(comm);
  countLibraryObject("nccl_communicators", 1);
}

// The communicator is gone for the program; its queued collectives keep it.
void remove(const std::shared_ptr<ncclComm> &comm) {
  std::lock_guard lock(mutex);
  std::erase(communicators, comm);
  driver().memory.giveBack();
  countLibraryObject("nccl_communicators", -1);
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  return call("ncclGetVersion", Kind::Start, [&] {
    *version = hostility().ncclVersion ? hostility().ncclVersion : NCCL_VERSION_CODE;
  });
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  default:
    return "internal error";
  }
}

const char *ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  return call("ncclGetUniqueId", Kind::Start, [&] {
    std::random_device random;
    const std::string name =
        fmt::format("/lmc-nccl-{}-{:08x}{:08x}", ::getpid(), random(), random());
    std::memset(id, 0, sizeof(*id));
    std::memcpy(id->internal, name.c_str(), name.size());
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t *handle, int ranks, ncclUniqueId id, int rank) {
  if (const char *interface = std::getenv("NCCL_SOCKET_IFNAME"))
    driver().note(fmt::format("NCCL would use the interface '{}'", interface));
  auto comm = std::make_shared<ncclComm>();
  comm->memory = RankMemory::open(id.internal, rank, ranks, deviceOfMachine());
  if (!comm->memory)
    return call("ncclCommInitRank", Kind::Call, [&] {
      broken(CUDA_ERROR_INVALID_VALUE, "there is no rank {} of {} ranks", rank, ranks);
    });
  const ncclResult_t made = call("ncclCommInitRank", Kind::Call, [&] {
    checkSafe();
    if (!usedIds.insert({id.internal, rank}).second)
      broken(kRuleBroken, "rank {} uses the name of a communicator a second time", rank);
    driver().memory.takeForLibrary();
    add(comm);
  });
  comm->memory->join(/*failed=*/made != ncclSuccess);
  if (made != ncclSuccess) {
    if (ranks == 1)
      (void)comm->memory->awaitAll(); // nobody else removes its name
    return made;
  }
  if (const std::string missing = comm->memory->awaitAll(); !missing.empty()) {
    (void)call("ncclCommInitRank", Kind::Leave, [&] { remove(comm); });
    return ncclRemoteError;
  }
  if (const int other = comm->memory->findDuplicate(); other >= 0)
    return call("ncclCommInitRank", Kind::Leave, [&] {
      remove(comm);
      broken(kRuleBroken, "ranks {} and {} of a communicator have one device", rank, other);
    });
  static Progress progress;
  *handle = comm.get();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  std::shared_ptr<ncclComm> comm;
  const ncclResult_t begun = call("ncclCommDestroy", Kind::Release, [&] {
    comm = find(handle);
    remove(comm);
    comm->memory->leave();
    checkUnused(handle);
  });
  if (begun != ncclSuccess)
    return begun;
  if (const int missing = comm->memory->awaitLeaving(hostility().patience); missing >= 0)
    return call("ncclCommDestroy", Kind::Leave, [&] {
      broken(kRuleBroken,
             "rank {} waits for ever for rank {} of this machine, which does not destroy the "
             "communicator",
             comm->memory->rank, missing);
    });
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const ncclResult_t begun = call("ncclCommAbort", Kind::Release, [&] {
    const auto comm = find(handle);
    comm->aborted = true;
    comm->memory->leave();
  });
  if (begun == ncclInvalidArgument) // there is no such communicator
    return begun;
  while (hostility().abortHangs)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  awaitOthers(handle);
  return call("ncclCommAbort", Kind::Release, [&] {
    const auto comm = find(handle);
    if (const std::string user = graphOf(handle); !user.empty())
      broken(kRuleBroken, "an abort waits for ever for the graph of '{}', which is not destroyed",
             user);
    if (const std::string other = runningCollective(); !other.empty())
      broken(kRuleBroken,
             "an abort waits for ever for '{}' of another communicator, which is not aborted",
             other);
    remove(comm);
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *result) {
  return call("ncclCommGetAsyncError", Kind::Call, [&] {
    find(handle);
    *result = ncclSuccess;
  });
}

ncclResult_t ncclAllGather(const void *x, void *d, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  auto dtype = [type] {
    if (type != ncclInt8)
      broken(CUDA_ERROR_NOT_SUPPORTED, "only bytes are gathered here");
    return DType::I8;
  };
  return start("ncclAllGather", CollectiveKind::AllGather, x, d, count, dtype, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *x, void *d, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return start(
      "ncclReduceScatter", CollectiveKind::ReduceScatter, x, d, count * widthOf(type),
      [=] { return summed(type, op); }, comm, stream);
}

ncclResult_t ncclAllReduce(const void *x, void *d, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return start(
      "ncclAllReduce", CollectiveKind::AllReduce, x, d, count * widthOf(type),
      [=] { return summed(type, op); }, comm, stream);
}

} // extern "C"
