// A GPU as a device. It captures each function of the plan once, as CUDA graphs. These need no
// updates: addresses never change, and values that change between steps are in device memory.
#include "ground/plan/Operands.h"
#include "ground/plan/PlannedBytes.h"
#include "ground/support/Size.h"
#include "runtime/device/Ranges.h"
#include "runtime/device/cuda/Encoder.h"
#include "runtime/device/cuda/Pause.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LMC_HAS_NVTX 1
#endif

namespace lmc::cuda {
namespace {

// Names a part of the host's work for NVIDIA's profilers. Nsight Systems shows the name with the
// kernels that this work enqueued. A build without the header of NVTX names nothing.
class ProfilerRange {
public:
#ifdef LMC_HAS_NVTX
  explicit ProfilerRange(const char *name) { nvtxRangePushA(name); }
  ~ProfilerRange() { nvtxRangePop(); }
#else
  explicit ProfilerRange(const char *) {}
#endif
  ProfilerRange(const ProfilerRange &) = delete;
};

class CudaDevice;

// After this time, drain() aborts NCCL's collectives if the GPU is not idle.
constexpr std::chrono::seconds kLastWait{5};

// Commands `first` to `last` of a function, which run as one graph or are enqueued one by one.
struct Part {
  uint32_t first = 0, last = 0;
  bool capturable = false;
  GraphExec graph;
  size_t nodes = 0; // nodes of the graph
};

struct CudaExecutable final : Executable {
  ~CudaExecutable() override;
  CudaDevice *owner = nullptr;
  const plan::Function *function = nullptr;
  std::vector<Encoded> commands; // one per command of the function
  std::vector<Part> parts;
  bool captured = false;
  // False before the first run of a function with collectives: in this run NCCL connects the GPUs,
  // and a graph must not capture that.
  bool mayCapture = false;
};

struct CudaMark final : Mark {
  Event event;
  bool placed = false;
  uint64_t runs = 0; // the number of runs of functions that were submitted before the mark
};

class PinnedBuffer final : public HostBuffer {
public:
  PinnedBuffer(CudaDevice &owner, PinnedMemory memory, uint64_t bytes)
      : owner(owner), memory(std::move(memory)) {
    start = static_cast<char *>(this->memory.get());
    size = bytes;
  }
  ~PinnedBuffer() override;

private:
  CudaDevice &owner;
  PinnedMemory memory;
};

// Two pinned buffers. A thread uses them for copies between ordinary host memory and the GPU.
struct Staging {
  static constexpr uint64_t kBytes = 8 << 20;
  char *buffer(uint64_t piece) { return static_cast<char *>(buffers[piece % 2].get()); }
  CUevent event(uint64_t piece) { return done[piece % 2].get(); }
  PinnedMemory buffers[2];
  Event done[2];
};

class CudaDevice final : public Device {
public:
  CudaDevice(const Driver &driver, Gpu gpu, const DeviceOptions &options)
      : driver(driver), gpu(std::move(gpu)), options(options) {}
  ~CudaDevice() override;

  // Destroys all graphs when their collectives are aborted. No graph can be captured afterwards.
  void dropGraphs();
  // The destructor of `executable` must call this.
  void forget(CudaExecutable &executable) {
    std::lock_guard lock(graphsMutex);
    executables.erase(&executable);
  }

  // Waits until the GPU is idle. Aborts collectives in which other ranks do not take part.
  void drain();

  DeviceInfo info(plan::DType computeDType) const override;
  Result<void> load(const PlanFile &file) override;
  std::vector<std::string> takeNotes() override {
    std::lock_guard lock(graphsMutex);
    return std::exchange(notes, {});
  }
  uint64_t allocatedBytes() const override { return allocated; }
  Result<std::unique_ptr<Executable>> record(int index) override;
  Result<void> submit(Executable &executable) override;
  Result<std::vector<CommandTime>> submitTimed(Executable &executable,
                                               const AfterCommand &after) override;
  Result<std::unique_ptr<HostBuffer>> hostBuffer(uint64_t bytes) override {
    LMC_TRY(gpu.use());
    PinnedMemory memory;
    LMC_TRY(allocatePinned(driver, bytes, fmt::format("allocate {} bytes of pinned memory", bytes),
                           memory));
    std::memset(memory.get(), 0, bytes);
    return std::unique_ptr<HostBuffer>(
        std::make_unique<PinnedBuffer>(*this, std::move(memory), bytes));
  }

  Result<void> upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset) override {
    LMC_TRY(checkRange(plan, to));
    LMC_TRY(checkRange(from, offset, to.bytes));
    LMC_TRY(gpu.use());
    const Progress::Wait marked = waiting();
    return checkWork(
        driver.cuMemcpyHtoDAsync(address(to), from.data() + offset, to.bytes, stream.get()));
  }

  Result<void> download(const ArenaRange &from, HostBuffer &to, uint64_t offset) override {
    LMC_TRY(checkRange(plan, from));
    LMC_TRY(checkRange(to, offset, from.bytes));
    LMC_TRY(gpu.use());
    const Progress::Wait marked = waiting();
    return checkWork(
        driver.cuMemcpyDtoHAsync(to.data() + offset, address(from), from.bytes, stream.get()));
  }

  Result<std::unique_ptr<Mark>> makeMark() override {
    LMC_TRY(gpu.use());
    auto mark = std::make_unique<CudaMark>();
    LMC_TRY(makeEvent(driver, /*timed=*/true, mark->event));
    return std::unique_ptr<Mark>(std::move(mark));
  }

  Result<void> place(Mark &mark) override {
    LMC_TRY(gpu.use());
    auto &at = static_cast<CudaMark &>(mark);
    const Progress::Wait marked = waiting();
    LMC_TRY(checkWork(driver.cuEventRecord(at.event.get(), stream.get())));
    at.placed = true;
    at.runs = submittedRuns();
    return {};
  }

  Result<void> wait(Mark &mark) override {
    auto &at = static_cast<CudaMark &>(mark);
    LMC_TRY(checkWork(CUDA_SUCCESS));
    if (!at.placed)
      return {};
    LMC_TRY(gpu.use());
    LMC_TRY(awaitEvent(at.event.get()));
    setComplete(at.runs);
    return {};
  }

  Result<bool> reached(Mark &mark) override {
    auto &at = static_cast<CudaMark &>(mark);
    LMC_TRY(checkWork(CUDA_SUCCESS));
    if (!at.placed)
      return true;
    LMC_TRY(gpu.use());
    const CUresult result = driver.cuEventQuery(at.event.get());
    if (result == CUDA_ERROR_NOT_READY)
      return false;
    LMC_TRY(checkWork(result));
    setComplete(at.runs);
    return true;
  }

  Result<double> secondsBetween(const Mark &from, const Mark &to) override {
    LMC_TRY(gpu.use());
    float milliseconds = 0;
    LMC_TRY(checkWork(driver.cuEventElapsedTime(&milliseconds,
                                                static_cast<const CudaMark &>(from).event.get(),
                                                static_cast<const CudaMark &>(to).event.get())));
    return milliseconds * 1e-3;
  }

  Result<void> synchronize() override {
    LMC_TRY(checkWork(CUDA_SUCCESS));
    LMC_TRY(gpu.use());
    const uint64_t runs = submittedRuns();
    LMC_TRY(checkWork(awaitStream()));
    setComplete(runs);
    return {};
  }

  Result<bool> initialize(int variable, const HeldPart &part, uint64_t seed) override;
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    return copy(slice, const_cast<void *>(source), /*toGpu=*/true, bytes, offset);
  }

  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    return copy(slice, target, /*toGpu=*/false, bytes, offset);
  }

private:
  Result<void> checkMachine(const PlanFile &loaded) const;
  Result<void> openCollectives(const PlanFile &loaded);
  Result<void> allocate();
  // Gives a copy's staging buffers back to the device, which frees them when a function runs.
  struct GiveBack {
    CudaDevice *owner;
    void operator()(Staging *staging) const {
      std::lock_guard lock(owner->stagingMutex);
      owner->stagings.emplace_back(staging);
    }
  };
  using StagingLoan = std::unique_ptr<Staging, GiveBack>;
  Result<StagingLoan> takeStaging();
  // Copies `host` to a slice if `toGpu`, else a slice to `host`. See copyIn() and copyOut().
  Result<void> copy(int slice, void *host, bool toGpu, uint64_t bytes, uint64_t offset);
  Result<void> capture(CudaExecutable &executable);
  Result<void> capture(const CudaExecutable &executable, Part &part);
  // Launches the graph of a part. Returns false if there is none.
  Result<bool> launch(const Part &part);
  // Calls the driver's function `wait`. With NCCL, it calls `query` repeatedly instead and checks
  // the ranks, because a collective may wait for a lost rank for ever.
  template <typename Handle>
  Result<void> await(CUresult (*wait)(Handle), CUresult (*query)(Handle), Handle handle);
  // While the returned object exists, other ranks see that this rank waits for the GPU. A function
  // that enqueues work needs such an object too, because it waits if the driver's queue is full.
  Progress::Wait waiting() const {
    return Progress::Wait(options.world ? &options.world->progress() : nullptr, "its device");
  }

  Result<void> awaitEvent(CUevent event) {
    return checkWork(await(driver.cuEventSynchronize, driver.cuEventQuery, event));
  }

  Result<void> awaitStream() {
    return await(driver.cuStreamSynchronize, driver.cuStreamQuery, stream.get());
  }

  Result<void> run(const CudaExecutable &executable, uint32_t command);
  // Prepares a run of a recorded function.
  Result<CudaExecutable *> begin(Executable &executable);
  CUdeviceptr address(const ArenaRange &range) const {
    return arenas[range.arena].get() + range.offset;
  }

  Result<void> resultOf(CUresult result) const {
    if (result == CUDA_SUCCESS)
      return {};
    return machineError("the GPU failed: {}", driver.text(result));
  }

  // Returns an error if `result`, or the result of earlier work, is an error.
  Result<void> checkWork(const Result<void> &result);
  Result<void> checkWork(CUresult result) { return checkWork(resultOf(result)); }
  // Records that the first `runs` runs of functions are complete.
  void setComplete(uint64_t runs) {
    std::lock_guard lock(workMutex);
    while (!pending.empty() && submitted - pending.size() < runs)
      pending.pop_front();
  }
  uint64_t submittedRuns() {
    std::lock_guard lock(workMutex);
    return submitted;
  }

  // Returns the runs that may have failed, as text for an error.
  std::string suspects() const;

  const Driver &driver;
  Gpu gpu;
  DeviceOptions options;
  bool loading = false; // load() was called
  const PlanFile *file = nullptr;
  const plan::Plan *plan = nullptr;
  uint64_t allocated = 0;
  uint64_t freeAtFirst = 0; // free bytes of the GPU before this object allocated any
  std::mutex graphsMutex;   // guards the next three members, and the graphs of executables
  std::vector<std::string> notes;
  std::set<CudaExecutable *> executables;
  bool graphsDropped = false;
  Stream stream;
  Kernels kernels;
  std::unique_ptr<Products> products;
  std::unique_ptr<ProductWays> ways;
  std::unique_ptr<Collectives> collectives;
  std::vector<DeviceMemory> arenas;
  std::vector<CUdeviceptr> addresses; // the addresses of the arenas
  std::vector<std::string> remarks;   // DeviceInfo::remarks, without those of kernels
  DeviceMemory initializerRecord;     // the InitializerRecord that an initializer's kernel reads
  std::unique_ptr<HostBuffer> hostRecord;
  std::mutex workMutex;         // guards the next three members
  std::optional<Error> failure; // the first failure of the GPU's work
  uint64_t submitted = 0;       // the number of runs of functions so far
  // Runs of functions that may be incomplete, oldest first: "'micro' (step 3, micro-step 2 of 4)".
  std::deque<std::string> pending;
  std::mutex stagingMutex;
  std::vector<std::unique_ptr<Staging>> stagings;
};

CudaExecutable::~CudaExecutable() {
  if (owner)
    owner->forget(*this);
}

CudaDevice::~CudaDevice() {
  drain();
  dropGraphs();
  for (CudaExecutable *executable : executables)
    executable->owner = nullptr;
}

void CudaDevice::dropGraphs() {
  std::lock_guard lock(graphsMutex);
  graphsDropped = true;
  for (CudaExecutable *executable : executables)
    for (Part &part : executable->parts)
      part.graph = GraphExec();
}

void CudaDevice::drain() {
  (void)gpu.use();
  if (!stream.get())
    return;
  if (collectives && !collectives->byHost()) {
    if (!checkWork(CUDA_SUCCESS))
      collectives->abort();
    const auto start = std::chrono::steady_clock::now();
    while (driver.cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) {
      if (std::chrono::steady_clock::now() - start > kLastWait)
        collectives->abort();
      std::this_thread::sleep_for(kPause);
    }
  }
  (void)driver.cuStreamSynchronize(stream.get());
}

template <typename Handle>
Result<void> CudaDevice::await(CUresult (*wait)(Handle), CUresult (*query)(Handle), Handle handle) {
  const Progress::Wait marked = waiting();
  if (!collectives || collectives->byHost())
    return resultOf(wait(handle));
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const CUresult result = query(handle);
    LMC_TRY(collectives->check());
    if (result != CUDA_ERROR_NOT_READY)
      return resultOf(result);
    std::this_thread::sleep_for(pauseAfter(std::chrono::steady_clock::now() - start));
  }
}

// Waits for the GPU, which may still use the memory, even after a failure.
PinnedBuffer::~PinnedBuffer() { owner.drain(); }

DeviceInfo CudaDevice::info(plan::DType) const {
  DeviceInfo info;
  info.name = fmt::format("{} (GPU {}, {}, sm_{}{}, {} multiprocessors, driver for CUDA {}.{})",
                          gpu.name, options.index, gpu.uuid, gpu.major, gpu.minor,
                          gpu.multiprocessors, driver.version / 1000, driver.version % 1000 / 10);
  info.memoryBytes = gpu.memoryBytes;
  if (auto free = gpu.freeBytes())
    info.freeBytes = *free;
  info.remarks = kernels.differences();
  info.remarks.insert(info.remarks.end(), remarks.begin(), remarks.end());
  return info;
}

Result<void> CudaDevice::load(const PlanFile &loaded) {
  if (std::exchange(loading, true))
    return machineError("a device loads one plan only");
  if (auto fits = checkMachine(loaded); !fits)
    return Error{fmt::format("{}: {}", loaded.path(), fits.error().message), fits.error().code};
  LMC_LET(free, gpu.freeBytes());
  freeAtFirst = *free;
  CUstream made = nullptr;
  LMC_CUDA(driver, cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "create a stream");
  stream = Stream(driver, made);
  LMC_TRY(openCollectives(loaded));
  LMC_TRY(kernels.load(driver, loaded));

  // Products are tried before the arenas are allocated, because trying them needs memory.
  std::vector<ProductShape> shapes;
  std::vector<TwoWayProduct> inTwoWays;
  for (const auto *function : *loaded->functions())
    for (const auto *command : *function->commands()) {
      if (const plan::Gemm *gemm = plan::productOf(*command))
        shapes.push_back(Products::shapeOf(*loaded, *command, *gemm));
      if (plan::hasTwoWays(*command))
        inTwoWays.push_back(ProductWays::describe(*loaded, *command, kernels));
    }
  if (!shapes.empty() || !inTwoWays.empty()) {
    LMC_LET(opened, Products::open(driver, gpu));
    products = std::move(*opened);
    ways = std::make_unique<ProductWays>(driver, gpu, *products);
    LMC_TRY(chooseTogether(options.gemms, options.world, [&]() -> Result<void> {
      LMC_TRY(products->choose(shapes, options.gemms, stream.get()));
      return ways->choose(inTwoWays, options.gemms, stream.get());
    }));
    remarks = products->remarks();
    remarks.insert(remarks.end(), ways->remarks().begin(), ways->remarks().end());
  }
  file = &loaded;
  plan = &*loaded;
  return allocate();
}

Result<void> CudaDevice::checkMachine(const PlanFile &loaded) const {
  const std::string target = loaded->target()->str();
  LMC_TRY(gpu.use());
  LMC_TRY(gpu.requireArchitecture(target.substr(target.find(':') + 1)));
  return gpu.requireFree(plannedBytes(*loaded), arenaBreakdown(*loaded));
}

Result<void> CudaDevice::openCollectives(const PlanFile &loaded) {
  std::set<plan::Axis> axes;
  for (const auto *function : *loaded->functions())
    for (const auto *command : *function->commands())
      if (const plan::Collective *op = command->body_as_Collective())
        axes.insert(op->axis());
  if (axes.empty() || !options.world)
    return {};
  if (options.hostCollectives) {
    collectives = makeHostCollectives(driver, *options.world);
    return {};
  }
  LMC_LET(opened, openNccl(driver, gpu, *options.world, {axes.begin(), axes.end()},
                           [this] { dropGraphs(); }));
  collectives = std::move(*opened);
  return {};
}

Result<void> CudaDevice::allocate() {
  auto take = [&](uint64_t bytes, const std::string &what) -> Result<DeviceMemory> {
    CUdeviceptr at = 0;
    const CUresult result = driver.cuMemAlloc(&at, std::max<uint64_t>(bytes, 1));
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      LMC_TRY(gpu.requireFree(bytes, what)); // this error explains more than the driver's error
    LMC_TRY(driver.check(result, fmt::format("allocate {} bytes for {}", bytes, what)));
    return DeviceMemory(driver, at);
  };
  LMC_LET(before, gpu.freeBytes());
  const uint64_t libraries = freeAtFirst > *before ? freeAtFirst - *before : 0;
  LMC_TRY(gpu.requireFree(plannedBytes(*plan),
                          fmt::format("{}; {} that were free are in kernels and libraries now",
                                      arenaBreakdown(*plan), formatBytes(libraries))));
  for (const auto *arena : *plan->arenas()) {
    LMC_LET(memory, take(arena->bytes(), "arena " + arena->name()->str()));
    arenas.push_back(std::move(*memory));
    addresses.push_back(arenas.back().get());
    allocated += arena->bytes();
  }
  LMC_LET(after, gpu.freeBytes());
  // The driver allocates memory in pages of 2 MiB.
  const uint64_t pages = (arenas.size() + 1) * (2 << 20), taken = *before - *after;
  if (*before < *after || taken > allocated + pages || taken + pages < allocated)
    remarks.push_back(fmt::format("the plan has {} in its arenas, and the GPU's free memory went "
                                  "from {} to {} when they were allocated",
                                  formatBytes(allocated), formatBytes(*before),
                                  formatBytes(*after)));
  LMC_LET(memory, take(sizeof(InitializerRecord), "initial values"));
  initializerRecord = std::move(*memory);
  LMC_LET(buffer, hostBuffer(sizeof(InitializerRecord)));
  hostRecord = std::move(*buffer);
  // The arena `state` (index 0) starts as zeros.
  if (!arenas.empty() && plan->arenas()->Get(0)->bytes() > 0)
    LMC_CUDA(driver,
             cuMemsetD8Async(addresses[0], 0, plan->arenas()->Get(0)->bytes(), stream.get()),
             "set the state to zeros");
  return synchronize();
}

// Returns a bool per command: true for a collective without a Wait in the same Part. A captured
// graph must wait for all work that it starts, and cannot wait for work of an earlier graph.
static std::vector<bool> waitedForApart(const plan::Function &function,
                                        const std::vector<Part> &parts) {
  std::vector<bool> apart(function.commands()->size());
  for (const Part &part : parts) {
    for (uint32_t i = part.first; i <= part.last; ++i)
      apart[i] = function.commands()->Get(i)->body_as_Collective() != nullptr;
    for (uint32_t i = part.first; i <= part.last; ++i)
      if (const plan::Wait *wait = function.commands()->Get(i)->body_as_Wait();
          wait && wait->command() >= part.first)
        apart[wait->command()] = false;
  }
  return apart;
}

Result<std::unique_ptr<Executable>> CudaDevice::record(int index) {
  LMC_LET(function, functionOf(plan, index));
  LMC_TRY(gpu.use());
  auto executable = std::make_unique<CudaExecutable>();
  executable->owner = this;
  executable->function = *function;
  // Collectives by the host cannot be captured, so they are enqueued one by one.
  const uint32_t count = (*function)->commands()->size();
  std::vector<bool> capturable(count);
  if (options.graphs && !options.checkEveryCommand)
    for (uint32_t i = 0; i < count; ++i)
      capturable[i] = !(collectives && collectives->byHost() &&
                        (*function)->commands()->Get(i)->body_as_Collective());
  bool runsFirst = false;
  for (uint32_t i = 0; i < count; ++i) {
    runsFirst |= (*function)->commands()->Get(i)->body_as_Collective() && capturable[i];
    if (i > 0 && executable->parts.back().capturable == capturable[i])
      executable->parts.back().last = i;
    else
      executable->parts.push_back({i, i, capturable[i], GraphExec()});
  }
  executable->mayCapture = !runsFirst;
  Encoder encoder{driver, *plan, kernels, products.get(), ways.get(), collectives.get(), addresses};
  LMC_LET(encoded, encoder.encode(**function, waitedForApart(**function, executable->parts),
                                  options.checkEveryCommand));
  executable->commands = std::move(*encoded);
  {
    std::lock_guard lock(graphsMutex);
    executables.insert(executable.get());
  }
  LMC_TRY(capture(*executable));
  return std::unique_ptr<Executable>(std::move(executable));
}

Result<void> CudaDevice::capture(CudaExecutable &executable) {
  if (executable.captured || !executable.mayCapture)
    return {};
  const auto start = std::chrono::steady_clock::now();
  size_t nodes = 0;
  for (Part &part : executable.parts) {
    if (part.capturable)
      LMC_TRY(capture(executable, part));
    nodes += part.nodes;
  }
  executable.captured = true;
  if (nodes == 0)
    return {};
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::lock_guard lock(graphsMutex);
  notes.push_back(fmt::format("graph: {} has {} nodes, captured in {:.2f} s",
                              executable.function->name()->str(), nodes, seconds.count()));
  return {};
}

Result<void> CudaDevice::capture(const CudaExecutable &executable, Part &part) {
  const std::string what = fmt::format("capture {} as a graph", executable.function->name()->str());
  LMC_CUDA(driver, cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), what);
  Result<void> encoded;
  for (uint32_t i = part.first; i <= part.last && encoded; ++i)
    encoded = executable.commands[i](stream.get());
  CUgraph captured = nullptr;
  const CUresult ended = driver.cuStreamEndCapture(stream.get(), &captured);
  Graph graph(driver, captured);
  LMC_TRY(encoded);
  LMC_TRY(driver.check(ended, what));
  LMC_CUDA(driver, cuGraphGetNodes(graph.get(), nullptr, &part.nodes), what);
  CUgraphExec instance = nullptr;
  // Without this flag all nodes have the same priority, and collectives wait for large products.
  const CUresult made = driver.cuGraphInstantiate(
      &instance, graph.get(), CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  if (made == CUDA_ERROR_OUT_OF_MEMORY)
    if (auto free = gpu.freeBytes())
      return machineError(
          "cannot {}: {} of the GPU's memory are free, and the graph needs more: compile "
          "with a smaller [memory] budget, or give --no-cuda-graphs",
          what, formatBytes(*free));
  LMC_TRY(driver.check(made, what));
  std::lock_guard lock(graphsMutex);
  GraphExec owned(driver, instance);
  if (graphsDropped)
    return Error{"the GPUs are no longer connected", ExitCode::RankFailed};
  LMC_CUDA(driver, cuGraphUpload(instance, stream.get()), what);
  part.graph = std::move(owned);
  return {};
}

Result<void> CudaDevice::checkWork(const Result<void> &result) {
  std::lock_guard lock(workMutex);
  if (!failure && !result) {
    failure = result.error();
    if (failure->code != ExitCode::RankFailed)
      failure->message += "; " + suspects();
  }
  if (failure)
    return *failure;
  return {};
}

// After a failure, the driver does not say which events the GPU has reached.
std::string CudaDevice::suspects() const {
  if (pending.empty())
    return submitted == 0 ? "no function had run" : "all functions that were submitted had ended";
  return fmt::format("not known to have ended: {}{}{}", pending.front(),
                     pending.size() > 1 ? " to " + pending.back() : "",
                     options.checkEveryCommand
                         ? ""
                         : "; start again with --check-commands to learn the op");
}

Result<void> CudaDevice::run(const CudaExecutable &executable, uint32_t command) {
  const plan::Command &planned = *executable.function->commands()->Get(command);
  ProfilerRange range(planned.source() ? planned.source()->c_str()
                                       : plan::EnumNameCommandBody(planned.body_type()));
  const Progress::Wait marked = waiting();
  auto enqueued = executable.commands[command](stream.get());
  if (enqueued && options.checkEveryCommand)
    enqueued = awaitStream();
  if (enqueued)
    return {};
  const Error &error = enqueued.error();
  std::lock_guard lock(workMutex);
  failure = Error{fmt::format("{}{}: {}", purpose.empty() ? "" : purpose + ", ",
                              plan::placeOf(*executable.function, command), error.message),
                  error.code == ExitCode::RankFailed ? error.code : ExitCode::Failure};
  return *failure;
}

Result<CudaExecutable *> CudaDevice::begin(Executable &executable) {
  auto *recorded = dynamic_cast<CudaExecutable *>(&executable);
  if (!recorded || recorded->owner != this)
    return machineError("a function was submitted to a device that did not record it");
  LMC_TRY(checkWork(CUDA_SUCCESS));
  LMC_TRY(gpu.use());
  {
    std::lock_guard lock(stagingMutex);
    stagings.clear();
  }
  std::lock_guard lock(workMutex);
  const std::string name = fmt::format("'{}'", recorded->function->name()->str());
  pending.push_back(purpose.empty() ? name : fmt::format("{} ({})", name, purpose));
  ++submitted;
  return recorded;
}

Result<bool> CudaDevice::launch(const Part &part) {
  const Progress::Wait marked = waiting();
  std::lock_guard lock(graphsMutex);
  if (!part.graph.get())
    return false;
  LMC_TRY(checkWork(driver.cuGraphLaunch(part.graph.get(), stream.get())));
  return true;
}

Result<void> CudaDevice::submit(Executable &executable) {
  LMC_LET(begun, begin(executable));
  const CudaExecutable &recorded = **begun;
  ProfilerRange range(recorded.function->name()->c_str());
  LMC_TRY(capture(**begun));
  (*begun)->mayCapture = true;
  for (const Part &part : recorded.parts) {
    LMC_LET(launched, launch(part));
    if (*launched)
      continue;
    for (uint32_t i = part.first; i <= part.last; ++i)
      LMC_TRY(run(recorded, i));
  }
  if (options.checkEveryCommand)
    setComplete(submittedRuns());
  return {};
}

Result<std::vector<CommandTime>> CudaDevice::submitTimed(Executable &executable,
                                                         const AfterCommand &after) {
  LMC_LET(begun, begin(executable));
  const CudaExecutable &recorded = **begun;
  ProfilerRange range(recorded.function->name()->c_str());
  const auto count = static_cast<uint32_t>(recorded.commands.size());
  // One event before the first command, and one after each command.
  std::vector<Event> events(count + 1);
  for (Event &event : events)
    LMC_TRY(makeEvent(driver, /*timed=*/true, event));
  LMC_TRY(checkWork(driver.cuEventRecord(events[0].get(), stream.get())));
  for (uint32_t i = 0; i < count; ++i) {
    LMC_TRY(run(recorded, i));
    LMC_TRY(checkWork(driver.cuEventRecord(events[i + 1].get(), stream.get())));
    if (!after)
      continue;
    LMC_TRY(checkWork(awaitStream()));
    LMC_TRY(after(i));
  }
  LMC_TRY(synchronize());
  std::vector<CommandTime> times;
  double start = 0;
  for (uint32_t i = 0; i < count; ++i) {
    float milliseconds = 0;
    LMC_TRY(checkWork(
        driver.cuEventElapsedTime(&milliseconds, events[i].get(), events[i + 1].get())));
    times.push_back({start, milliseconds * 1e-3});
    start += times.back().seconds;
  }
  return times;
}

Result<bool> CudaDevice::initialize(int index, const HeldPart &part, uint64_t seed) {
  const plan::Variable &variable = *plan->variables()->Get(uint32_t(index));
  const plan::Initializer *how = variable.initializer();
  const plan::Slice &slice = *plan->slices()->Get(variable.slice());
  // Returns the address of the first element of `part` in a slice with the variable's layout.
  auto addressOf = [&](const plan::Slice &of) {
    return addresses[of.arena()] + of.offset() + part.at * byteWidth(of.dtype());
  };
  if (how && how->kind() == plan::InitializerKind::Zeros) {
    LMC_TRY(gpu.use());
    LMC_TRY(checkWork(
        driver.cuMemsetD8Async(
        addressOf(slice), 0, part.count * byteWidth(slice.dtype()), stream.get())));
    return true;
  }
  if (!how || how->kernel() < 0)
    return false;
  LMC_TRY(synchronize()); // waits until the GPU has read the record of the previous variable
  const std::string_view name = variable.name()->string_view();
  const InitializerRecord record{
      part.first,
      part.count,
      seed,
      XXH64(name.data(), name.size(), 0),
      how->kind() == plan::InitializerKind::Normal ? how->stddev() : how->scale()};
  std::memcpy(hostRecord->data(), &record, sizeof record);
  LMC_TRY(checkWork(driver.cuMemcpyHtoDAsync(initializerRecord.get(), hostRecord->data(), sizeof record,
                                             stream.get())));
  std::vector<CUdeviceptr> arguments = {initializerRecord.get()};
  if (how->kind() == plan::InitializerKind::CopyOf) {
    const int source = how->source() ? file->findVariable(how->source()->string_view()) : -1;
    if (source < 0)
      return userError("plan: variable '{}' is a copy of no variable of the plan", name);
    arguments.push_back(addressOf(
        *plan->slices()->Get(plan->variables()->Get(uint32_t(source))->slice())));
  }
  arguments.push_back(addressOf(slice));
  LMC_TRY(Kernels::launch(driver, kernels.all()[uint32_t(how->kernel())], arguments, stream.get()));
  return true;
}

Result<CudaDevice::StagingLoan> CudaDevice::takeStaging() {
  LMC_TRY(gpu.use());
  {
    std::lock_guard lock(stagingMutex);
    if (!stagings.empty()) {
      StagingLoan staging(stagings.back().release(), GiveBack{this});
      stagings.pop_back();
      return staging;
    }
  }
  auto staging = std::make_unique<Staging>();
  for (int i = 0; i < 2; ++i) {
    LMC_TRY(allocatePinned(driver, Staging::kBytes,
                           fmt::format("allocate {} bytes of pinned memory", Staging::kBytes),
                           staging->buffers[i]));
    LMC_TRY(makeEvent(driver, /*timed=*/false, staging->done[i]));
  }
  return StagingLoan(staging.release(), GiveBack{this});
}

// The host copies a piece to or from one pinned buffer while the GPU copies another piece.
Result<void> CudaDevice::copy(int slice, void *host, bool toGpu, uint64_t bytes, uint64_t offset) {
  LMC_LET(range, rangeInSlice(plan, slice, bytes, offset));
  LMC_LET(loan, takeStaging());
  char *const start = static_cast<char *>(host);
  const uint64_t pieces = (bytes + Staging::kBytes - 1) / Staging::kBytes;
  for (uint64_t step = 0; step < pieces + 2; ++step) {
    char *buffer = (*loan)->buffer(step);
    const CUevent done = (*loan)->event(step);
    if (step >= 2) {
      LMC_TRY(awaitEvent(done));
      const uint64_t at = (step - 2) * Staging::kBytes;
      if (!toGpu)
        std::memcpy(start + at, buffer, std::min(Staging::kBytes, bytes - at));
    }
    if (step >= pieces)
      continue;
    const uint64_t at = step * Staging::kBytes, count = std::min(Staging::kBytes, bytes - at);
    const CUdeviceptr device = address(*range) + at;
    if (toGpu)
      std::memcpy(buffer, start + at, count);
    LMC_TRY(checkWork(toGpu ? driver.cuMemcpyHtoDAsync(device, buffer, count, stream.get())
                            : driver.cuMemcpyDtoHAsync(buffer, device, count, stream.get())));
    LMC_TRY(checkWork(driver.cuEventRecord(done, stream.get())));
  }
  return {};
}

} // namespace
} // namespace lmc::cuda

namespace lmc {

Result<std::unique_ptr<Device>> cudaDevice(const DeviceOptions &options) {
  LMC_LET(driver, cuda::openDriver());
  int visible = 0;
  LMC_TRY((*driver)->check((*driver)->cuDeviceGetCount(&visible), "count the GPUs"));
  DeviceOptions own = options;
  if (visible > 1)
    own.index += options.localRank;
  LMC_LET(gpu, cuda::Gpu::open(**driver, own.index));
  return std::unique_ptr<Device>(
      std::make_unique<cuda::CudaDevice>(**driver, std::move(*gpu), own));
}

} // namespace lmc
