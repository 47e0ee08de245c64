#include "runtime/device/cuda/Gpu.h"

#include "ground/support/Size.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <unistd.h>
#include <vector>

namespace lmc::cuda {

// Returns true if code for `architecture` runs on compute capability major.minor. "sm_90a" runs on
// 9.0 only, "sm_80" on every 8.x.
static bool runsOn(const std::string &architecture, int major, int minor) {
  int number = 0;
  char suffix = 0;
  const int read = std::sscanf(architecture.c_str(), "sm_%d%c", &number, &suffix);
  if (read < 1)
    return false;
  if (suffix == 'a')
    return number == major * 10 + minor;
  return number / 10 == major && number % 10 <= minor;
}

Result<Gpu> Gpu::open(const Driver &driver, int index) {
  int count = 0;
  LMC_CUDA(driver, cuDeviceGetCount(&count), "count the GPUs");
  if (index < 0 || index >= count) {
    const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return userError("--device={}: there is no such GPU; {} ({})", index,
                     count == 0   ? "there is no GPU"
                     : count == 1 ? "there is one GPU, number 0"
                                  : fmt::format("the GPUs have the numbers 0 to {}", count - 1),
                     visible ? fmt::format("CUDA_VISIBLE_DEVICES={}", visible)
                             : "CUDA_VISIBLE_DEVICES is not set");
  }
  CUdevice device = 0;
  LMC_CUDA(driver, cuDeviceGet(&device, index), fmt::format("open GPU {}", index));
  Gpu gpu(driver, device);
  char name[256] = {};
  LMC_CUDA(driver, cuDeviceGetName(name, sizeof name, device), "read the GPU's name");
  gpu.name = name;
  CUuuid id{};
  LMC_CUDA(driver, cuDeviceGetUuid(&id, device), "read the GPU's UUID");
  gpu.uuid = "GPU";
  for (int i = 0; i < 16; ++i)
    gpu.uuid += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                            static_cast<unsigned char>(id.bytes[i]));
  size_t bytes = 0;
  LMC_CUDA(driver, cuDeviceTotalMem(&bytes, device), "read the GPU's memory size");
  gpu.memoryBytes = bytes;
  const std::pair<CUdevice_attribute, int *> attributes[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &gpu.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &gpu.minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &gpu.multiprocessors}};
  for (auto [attribute, value] : attributes)
    LMC_CUDA(driver, cuDeviceGetAttribute(value, attribute, device), "read the GPU's properties");
  CUcontext context = nullptr;
  LMC_CUDA(driver, cuDevicePrimaryCtxRetain(&context, device),
           fmt::format("use GPU {} ({})", index, gpu.name));
  gpu.context.reset(context);
  LMC_TRY(gpu.use());
  return gpu;
}

Result<void> Gpu::requireArchitecture(const std::string &architecture) const {
  if (runsOn(architecture, major, minor))
    return {};
  return userError(
      "the plan is for {}, and the GPU ({}) is an sm_{}{}; compile with --target=cuda:sm_{}{}{}",
      architecture, name, major, minor, major, minor, major == 9 ? "a" : "");
}

Result<void> Gpu::use() const {
  LMC_CUDA(*driver, cuCtxSetCurrent(context.get()), "use the GPU in a thread");
  return {};
}

Result<uint64_t> Gpu::freeBytes() const {
  size_t free = 0, total = 0;
  LMC_CUDA(*driver, cuMemGetInfo(&free, &total), "read how much memory is free");
  return free;
}

namespace {

// From nvml.h of NVIDIA's management library. The driver has the library without this header.
struct ProcessInfo { // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};

std::string nameOfProcess(unsigned pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return name.empty() ? "" : " (" + name + ")";
}

// Returns the processes that have memory of the GPU with this UUID, or "" if they are not known.
std::string holders(const std::string &uuid) {
  std::string problem;
  void *library = openLibrary("LMC_NVML", {"libnvidia-ml.so.1"}, problem);
  if (!library)
    return "";
  auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  auto byUuid = reinterpret_cast<int (*)(const char *, void **)>(
      ::dlsym(library, "nvmlDeviceGetHandleByUUID"));
  auto processes = reinterpret_cast<int (*)(void *, unsigned *, ProcessInfo *)>(
      ::dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
  void *gpu = nullptr;
  if (!init || !byUuid || !processes || init() != 0 || byUuid(uuid.c_str(), &gpu) != 0)
    return "";
  constexpr int kTooSmall = 7; // NVML_ERROR_INSUFFICIENT_SIZE: `count` is then the needed size
  std::vector<ProcessInfo> all(64);
  auto count = static_cast<unsigned>(all.size());
  int status = processes(gpu, &count, all.data());
  if (status == kTooSmall) {
    all.resize(count + 8); // 8 more, because more processes may start before the next call
    count = static_cast<unsigned>(all.size());
    status = processes(gpu, &count, all.data());
  }
  if (status != 0)
    return "";
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    if (all[i].pid != static_cast<unsigned>(::getpid()))
      text += fmt::format("{}process {}{} holds {}", text.empty() ? "" : ", ", all[i].pid,
                          nameOfProcess(all[i].pid),
                          all[i].usedGpuMemory == ~0ull ? "an unknown amount"
                                                        : formatBytes(all[i].usedGpuMemory));
  return text;
}

} // namespace

Result<void> Gpu::requireFree(uint64_t bytes, const std::string &breakdown) const {
  LMC_LET(free, freeBytes());
  if (*free >= bytes)
    return {};
  std::string who = bytes > memoryBytes ? "" : holders(uuid);
  return Error{fmt::format("the plan needs {} of GPU memory ({}), and {} of {} are free on {}: {} "
                           "are missing{}; {}",
                           formatBytes(bytes), breakdown, formatBytes(*free),
                           formatBytes(memoryBytes), name, formatBytes(bytes - *free),
                           who.empty() ? "" : " (" + who + ")",
                           who.empty()
                               ? "compile with a smaller micro_batch_size or [memory] budget"
                               : "end these processes, or compile with a smaller [memory] budget"),
               ExitCode::DoesNotFit};
}

} // namespace lmc::cuda
