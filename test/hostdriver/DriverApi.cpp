// The entry points of libcuda, and one of tests' own.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "test/hostdriver/Devices.h"
#include "test/hostdriver/Driver.h"

#include <cstring>

using namespace lmc::hostdriver;

namespace {

constexpr size_t kMaxPitch = 0x7fffffff;
constexpr int kGreatestPriority = -5; // as an H100 says; the least is 0

// Returns `stream` if work may go to it. The legacy stream is refused, because it orders itself
// with all other streams, and no capture may go on while a program uses it.
CUstream streamOf(CUstream stream) {
  if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
    broken(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream is used");
  driver().streams.streams.check(stream);
  return stream;
}

CUevent eventOf(CUevent event) { return &driver().streams.events.check(event); }

int visible(CUdevice device) {
  const std::vector<int> all = visibleDevices();
  if (device < 0 || size_t(device) >= all.size())
    refuse(CUDA_ERROR_INVALID_DEVICE);
  return all[size_t(device)];
}

template <typename T> T *needed(T *pointer) {
  if (!pointer)
    refuse(CUDA_ERROR_INVALID_VALUE);
  return pointer;
}

// Submits a copy from one kind of memory to another.
void copy(CUstream stream, const Access &from, bool fromPinned, const Access &to, bool toPinned) {
  if (from.rows == 0 || from.run == 0)
    return;
  auto work = std::make_shared<Work>();
  const std::string name =
      fromPinned || toPinned
          ? fmt::format("copy of {} bytes from {} to {}", from.run * from.rows,
                        fromPinned ? "pinned memory" : driver().plan.place(from.begin),
                        toPinned ? "pinned memory" : driver().plan.place(to.begin))
          : driver().plan.findCopy(from, to);
  driver().memory.require(from, fromPinned, name);
  driver().memory.require(to, toPinned, name);
  work->name = std::make_shared<const std::string>(name);
  work->accesses = {from, to};
  work->isCopy = true;
  work->microseconds = 1 + double(from.run * from.rows) / (fromPinned || toPinned ? 2.5e4 : 1.5e6);
  work->execute = [from, to] {
    for (uint64_t row = 0; row < from.rows; ++row)
      std::memcpy(Memory::host(to.begin + row * to.pitch),
                  Memory::host(from.begin + row * from.pitch), from.run);
  };
  driver().graphs.submit(streamOf(stream), std::move(work));
}

uint64_t address(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Fails unless `flags` has no bit but those of `known`.
void checkFlags(const char *of, unsigned flags, unsigned known) {
  if (flags & ~known)
    broken(CUDA_ERROR_INVALID_VALUE, "{} has flags {:#x}, which cuda.h does not know", of, flags);
}

void elapsed(float *milliseconds, CUevent start, CUevent end) {
  for (CUevent event : {start, end}) {
    driver().graphs.checkNotCaptured(eventOf(event));
    if (event->flags & CU_EVENT_DISABLE_TIMING)
      broken(CUDA_ERROR_INVALID_HANDLE, "the time of an event is asked for that has no timing");
    if (!event->mark)
      broken(CUDA_ERROR_INVALID_HANDLE,
             "the time of an event is asked for that was never recorded");
    if (!event->mark->done)
      refuse(CUDA_ERROR_NOT_READY);
  }
  *needed(milliseconds) = float((end->mark->time - start->mark->time) / 1000);
}

CUresult call(const char *name, Kind kind, const std::function<void()> &body) {
  return driver().call(name, kind, body);
}

} // namespace

extern "C" {

// Starts anew with the environment as it is now, as if a new process had opened the library.
LMC_HOST_EXPORT void lmcHostReset() { Driver::reset(); }

CUresult cuGetErrorName(CUresult error, const char **text) {
  switch (error) {
#define LMC_ERROR(Name)                                                                            \
  case Name:                                                                                       \
    *text = #Name;                                                                                 \
    return CUDA_SUCCESS
    LMC_ERROR(CUDA_SUCCESS);
    LMC_ERROR(CUDA_ERROR_INVALID_VALUE);
    LMC_ERROR(CUDA_ERROR_OUT_OF_MEMORY);
    LMC_ERROR(CUDA_ERROR_NOT_INITIALIZED);
    LMC_ERROR(CUDA_ERROR_NO_DEVICE);
    LMC_ERROR(CUDA_ERROR_INVALID_DEVICE);
    LMC_ERROR(CUDA_ERROR_INVALID_IMAGE);
    LMC_ERROR(CUDA_ERROR_INVALID_CONTEXT);
    LMC_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU);
    LMC_ERROR(CUDA_ERROR_FILE_NOT_FOUND);
    LMC_ERROR(CUDA_ERROR_INVALID_HANDLE);
    LMC_ERROR(CUDA_ERROR_ILLEGAL_STATE);
    LMC_ERROR(CUDA_ERROR_NOT_FOUND);
    LMC_ERROR(CUDA_ERROR_NOT_READY);
    LMC_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS);
    LMC_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT);
    LMC_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    LMC_ERROR(CUDA_ERROR_LAUNCH_FAILED);
    LMC_ERROR(CUDA_ERROR_NOT_PERMITTED);
    LMC_ERROR(CUDA_ERROR_NOT_SUPPORTED);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    LMC_ERROR(CUDA_ERROR_CAPTURED_EVENT);
    LMC_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    LMC_ERROR(CUDA_ERROR_UNKNOWN);
#undef LMC_ERROR
  default:
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }

//===--------------------------------------------------------------------===//
// Devices and contexts

CUresult cuInit(unsigned flags) {
  return call("cuInit", Kind::Start, [&] {
    checkFlags("cuInit", flags, 0);
    if (visibleDevices().empty())
      refuse(CUDA_ERROR_NO_DEVICE);
    driver().initialized = true;
  });
}

CUresult cuDriverGetVersion(int *version) {
  return call("cuDriverGetVersion", Kind::Start,
              [&] { *needed(version) = hostility().driverVersion; });
}

CUresult cuDeviceGetCount(int *count) {
  return call("cuDeviceGetCount", Kind::Query,
              [&] { *needed(count) = int(visibleDevices().size()); });
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  return call("cuDeviceGet", Kind::Query, [&] {
    visible(ordinal);
    *needed(device) = ordinal;
  });
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  return call("cuDeviceGetName", Kind::Query, [&] {
    visible(device);
    std::snprintf(needed(name), size_t(length), "%s", deviceName().c_str());
  });
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  return call("cuDeviceGetUuid", Kind::Query, [&] {
    std::memcpy(needed(uuid)->bytes, deviceUuid(visible(device)).data(), sizeof(uuid->bytes));
  });
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  return call("cuDeviceGetAttribute", Kind::Query,
              [&] { *needed(value) = deviceAttribute(which, visible(device)); });
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  return call("cuDeviceTotalMem", Kind::Query, [&] {
    visible(device);
    *needed(bytes) = driver().memory.total();
  });
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  return call("cuDeviceGetPCIBusId", Kind::Query, [&] {
    std::snprintf(needed(text), size_t(length), "0000:%02x:00.0", visible(device) + 1);
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", Kind::Query, [&] {
    visible(device);
    if (!driver().contexts)
      driver().memory.takeForLibrary();
    ++driver().contexts;
    *needed(context) = reinterpret_cast<CUcontext>(&driver().contexts);
    driver().device = device;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease", Kind::Leave, [&] {
    visible(device);
    if (!driver().contexts)
      broken(CUDA_ERROR_INVALID_CONTEXT, "a primary context is released once too often");
    if (--driver().contexts == 0)
      driver().memory.giveBack();
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", Kind::Query, [&] {
    if (context &&
        (context != reinterpret_cast<CUcontext>(&driver().contexts) || !driver().contexts))
      broken(CUDA_ERROR_INVALID_CONTEXT, "a context is made current that is not retained");
    contextIsCurrent = context != nullptr;
  });
}

CUresult cuCtxGetDevice(CUdevice *device) {
  return call("cuCtxGetDevice", Kind::Call, [&] { *needed(device) = driver().device; });
}

//===--------------------------------------------------------------------===//
// Memory

CUresult cuMemGetInfo(size_t *available, size_t *total) {
  return call("cuMemGetInfo", Kind::Call, [&] {
    *needed(available) = driver().memory.available();
    *needed(total) = driver().memory.total();
  });
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
  return call("cuMemAlloc", Kind::Allocate, [&] {
    driver().graphs.checkSafe();
    *needed(pointer) = driver().memory.allocate(bytes, false);
  });
}

static void freeMemory(uint64_t start, bool pinned) {
  driver().graphs.checkSafe();
  const Access all = driver().memory.startingAt(start, pinned).all();
  const char *const action = pinned ? "pinned memory is freed" : "device memory is freed";
  driver().streams.release(all, action);
  driver().streams.checkNoCollective(action);
  driver().plan.forget(start);
  driver().memory.free(start);
}

CUresult cuMemFree(CUdeviceptr pointer) {
  return call("cuMemFree", Kind::Release, [&] { freeMemory(pointer, false); });
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  return call("cuMemHostAlloc", Kind::Allocate, [&] {
    driver().graphs.checkSafe();
    *needed(pointer) = Memory::host(driver().memory.allocate(bytes, true));
  });
}

CUresult cuMemFreeHost(void *pointer) {
  return call("cuMemFreeHost", Kind::Release, [&] { freeMemory(address(pointer), true); });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return call("cuMemcpyHtoDAsync", Kind::Call, [&] {
    copy(stream, {address(from), bytes, false}, true, {to, bytes, true}, false);
  });
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return call("cuMemcpyDtoHAsync", Kind::Call, [&] {
    copy(stream, {from, bytes, false}, false, {address(to), bytes, true}, true);
  });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return call("cuMemcpyDtoDAsync", Kind::Call, [&] {
    copy(stream, {from, bytes, false}, false, {to, bytes, true}, false);
  });
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *how, CUstream stream) {
  return call("cuMemcpy2DAsync", Kind::Call, [&] {
    const CUDA_MEMCPY2D &h = *needed(how);
    auto pinned = [](CUmemorytype type) {
      if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE)
        refuse(CUDA_ERROR_INVALID_VALUE);
      return type == CU_MEMORYTYPE_HOST;
    };
    const bool fromPinned = pinned(h.srcMemoryType), toPinned = pinned(h.dstMemoryType);
    const size_t fromPitch = h.srcPitch ? h.srcPitch : h.WidthInBytes,
                 toPitch = h.dstPitch ? h.dstPitch : h.WidthInBytes;
    if (fromPitch < h.WidthInBytes + h.srcXInBytes || toPitch < h.WidthInBytes + h.dstXInBytes)
      broken(CUDA_ERROR_INVALID_VALUE, "rows of {} bytes lie {} and {} bytes apart", h.WidthInBytes,
             fromPitch, toPitch);
    if (std::max(fromPitch, toPitch) > kMaxPitch)
      broken(CUDA_ERROR_INVALID_VALUE, "rows lie {} bytes apart, and the device copies at most {}",
             std::max(fromPitch, toPitch), kMaxPitch);
    const uint64_t from = fromPinned ? address(h.srcHost) : h.srcDevice,
                   to = toPinned ? address(h.dstHost) : h.dstDevice;
    copy(stream,
         {from + h.srcY * fromPitch + h.srcXInBytes, h.WidthInBytes, false, h.Height, fromPitch},
         fromPinned,
         {to + h.dstY * toPitch + h.dstXInBytes, h.WidthInBytes, true, h.Height, toPitch},
         toPinned);
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return call("cuMemsetD8Async", Kind::Call, [&] {
    auto work = std::make_shared<Work>();
    work->name = std::make_shared<const std::string>(
        fmt::format("fill of {} bytes at {}", bytes, driver().plan.place(to)));
    work->accesses = {{to, bytes, true}};
    driver().memory.require(work->accesses[0], false, *work->name);
    work->execute = [=] { std::memset(Memory::host(to), value, bytes); };
    driver().graphs.submit(streamOf(stream), std::move(work));
  });
}

//===--------------------------------------------------------------------===//
// Modules and kernels

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return call("cuModuleLoadData", Kind::Allocate, [&] {
    driver().graphs.checkSafe();
    *needed(module) = driver().modules.load(image);
  });
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *,
                            void **) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  return call("cuModuleUnload", Kind::Release, [&] {
    driver().graphs.checkSafe();
    driver().streams.checkNoCollective("a module is unloaded");
    driver().modules.unload(module);
  });
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return call("cuModuleGetFunction", Kind::Call,
              [&] { *needed(function) = driver().modules.function(module, needed(name)); });
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
  return call("cuFuncGetAttribute", Kind::Call, [&] {
    *needed(value) = driver().modules.attribute(driver().modules.check(function), which);
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  return call("cuFuncSetAttribute", Kind::Call, [&] {
    driver().modules.setAttribute(driver().modules.check(function), which, value);
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return call("cuFuncLoad", Kind::Allocate,
              [&] { driver().modules.check(function).loaded = true; });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t dynamicShared) {
  return call("cuOccupancyMaxActiveBlocksPerMultiprocessor", Kind::Call, [&] {
    *needed(blocks) = driver().modules.blocksPerMultiprocessor(driver().modules.check(function),
                                                               threads, dynamicShared);
  });
}

CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                        unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                        CUstream stream, void **parameters, void **extra) {
  return call("cuLaunchKernel", Kind::Call, [&] {
    if (extra)
      broken(CUDA_ERROR_INVALID_VALUE, "a launch has parameters in 'extra'");
    driver().graphs.submit(
        streamOf(stream),
        driver().modules.launch(driver().modules.check(function),
                                {{gridX, gridY, gridZ}, {blockX, blockY, blockZ}, sharedBytes},
                                parameters));
  });
}

//===--------------------------------------------------------------------===//
// Streams and events

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return call("cuStreamCreate", Kind::Call, [&] {
    checkFlags("a stream", flags, CU_STREAM_NON_BLOCKING);
    *needed(stream) = driver().streams.create(0);
  });
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  return call("cuCtxGetStreamPriorityRange", Kind::Call, [&] {
    *needed(least) = 0;
    *needed(greatest) = kGreatestPriority;
  });
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  return call("cuStreamCreateWithPriority", Kind::Call, [&] {
    checkFlags("a stream", flags, CU_STREAM_NON_BLOCKING);
    *needed(stream) = driver().streams.create(std::clamp(priority, kGreatestPriority, 0));
  });
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
  return call("cuStreamGetPriority", Kind::Call,
              [&] { *needed(priority) = streamOf(stream)->priority; });
}

CUresult cuStreamDestroy(CUstream stream) {
  return call("cuStreamDestroy", Kind::Release, [&] {
    driver().graphs.abandon(streamOf(stream));
    driver().streams.destroy(stream);
  });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return call("cuStreamSynchronize", Kind::Call, [&] {
    driver().graphs.checkNotCapturing(streamOf(stream));
    driver().graphs.checkSafe();
    driver().streams.finish(driver().streams.record(stream));
  });
}

CUresult cuStreamQuery(CUstream stream) {
  return call("cuStreamQuery", Kind::Call, [&] {
    driver().graphs.checkNotCapturing(streamOf(stream));
    driver().graphs.checkSafe();
    if (!driver().streams.poll(driver().streams.record(stream)))
      refuse(CUDA_ERROR_NOT_READY);
  });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call("cuStreamWaitEvent", Kind::Call, [&] {
    checkFlags("a wait for an event", flags, 0);
    driver().graphs.wait(streamOf(stream), eventOf(event));
  });
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  return call("cuEventCreate", Kind::Call, [&] {
    checkFlags("an event", flags,
               CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
      broken(CUDA_ERROR_INVALID_VALUE, "an interprocess event has timing");
    auto made = std::make_unique<CUevent_st>();
    made->flags = flags;
    *needed(event) = driver().streams.events.add(std::move(made));
  });
}

CUresult cuEventDestroy(CUevent event) {
  return call("cuEventDestroy", Kind::Release,
              [&] { driver().streams.events.remove(eventOf(event)); });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call("cuEventRecord", Kind::Call,
              [&] { driver().graphs.record(eventOf(event), streamOf(stream)); });
}

CUresult cuEventQuery(CUevent event) {
  return call("cuEventQuery", Kind::Call, [&] {
    driver().graphs.checkNotCaptured(eventOf(event));
    driver().graphs.checkSafe();
    if (event->mark && !driver().streams.poll(event->mark))
      refuse(CUDA_ERROR_NOT_READY);
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return call("cuEventSynchronize", Kind::Call, [&] {
    driver().graphs.checkNotCaptured(eventOf(event));
    driver().graphs.checkSafe();
    if (event->mark)
      driver().streams.finish(event->mark);
  });
}

#undef cuEventElapsedTime
LMC_HOST_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  return call("cuEventElapsedTime", Kind::Call, [&] { elapsed(milliseconds, start, end); });
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime(milliseconds, start, end);
}

//===--------------------------------------------------------------------===//
// Capture and graphs

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return call("cuStreamBeginCapture", Kind::Call, [&] {
    if (!stream || stream == CU_STREAM_LEGACY)
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    driver().graphs.begin(streamOf(stream), mode);
  });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  // A capture ends even if the call fails.
  return call("cuStreamEndCapture", Kind::Release, [&] {
    *needed(graph) = nullptr;
    if (driver().failing)
      driver().graphs.abandon(streamOf(stream));
    else
      *graph = driver().graphs.end(streamOf(stream));
  });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  return call("cuStreamIsCapturing", Kind::Call, [&] {
    const auto &capture = streamOf(stream)->capture;
    *needed(status) = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                      : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  return call("cuThreadExchangeStreamCaptureMode", Kind::Call,
              [&] { *needed(mode) = Graphs::exchangeMode(*needed(mode)); });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  return call("cuGraphInstantiateWithFlags", Kind::Allocate, [&] {
    checkFlags("a graph", unsigned(flags),
               CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                   CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                   CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    CUgraph_st &captured = driver().graphs.graphs.check(graph);
    driver().memory.takeForLibrary();
    *needed(exec) = driver().graphs.instantiate(
        &captured, flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  });
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return call("cuGraphUpload", Kind::Call, [&] {
    driver().graphs.execs.check(exec);
    driver().graphs.checkNotCapturing(streamOf(stream));
  });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call("cuGraphLaunch", Kind::Call, [&] {
    driver().graphs.launch(&driver().graphs.execs.check(exec), streamOf(stream));
    driver().pinnedAtLaunch = driver().memory.pinnedBytes();
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return call("cuGraphExecDestroy", Kind::Release, [&] {
    driver().graphs.execs.remove(&driver().graphs.execs.check(exec));
    driver().memory.giveBack();
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Kind::Release,
              [&] { driver().graphs.graphs.remove(&driver().graphs.graphs.check(graph)); });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  return call("cuGraphGetNodes", Kind::Call, [&] {
    const auto &all = *driver().graphs.graphs.check(graph).nodes;
    const size_t room = nodes ? *needed(count) : 0;
    for (size_t i = 0; i < room; ++i)
      nodes[i] =
          i < all.size() ? reinterpret_cast<CUgraphNode>(const_cast<Node *>(&all[i])) : nullptr;
    *needed(count) = nodes ? std::min(room, all.size()) : all.size();
  });
}

} // extern "C"
