#include "runtime/device/GpuMachine.h"
#include "runtime/device/cuda/Collectives.h"
#include "runtime/device/cuda/Products.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstring>

using nlohmann::ordered_json;

namespace lmc {

namespace {

using namespace cuda;

constexpr uint64_t kCopiedBytes = 64 << 20;

Result<ordered_json> copyThereAndBack(const Driver &driver) {
  CUstream made = nullptr;
  LMC_CUDA(driver, cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "create a stream");
  Stream stream(driver, made);
  PinnedMemory source, target;
  CUdeviceptr device = 0;
  LMC_TRY(allocatePinned(driver, kCopiedBytes, "allocate pinned memory", source));
  LMC_TRY(allocatePinned(driver, kCopiedBytes, "allocate pinned memory", target));
  LMC_CUDA(driver, cuMemAlloc(&device, kCopiedBytes), "allocate 64 MiB of the GPU's memory");
  DeviceMemory memory(driver, device);
  auto *words = static_cast<uint32_t *>(source.get());
  for (uint32_t i = 0; i < kCopiedBytes / sizeof *words; ++i)
    words[i] = i * 2654435761u; // all words differ, so that a misplaced word is noticed
  std::memset(target.get(), 0, kCopiedBytes);
  const auto start = std::chrono::steady_clock::now();
  LMC_CUDA(driver, cuMemcpyHtoDAsync(device, source.get(), kCopiedBytes, stream.get()),
           "copy to the GPU");
  LMC_CUDA(driver, cuMemcpyDtoHAsync(target.get(), device, kCopiedBytes, stream.get()),
           "copy from the GPU");
  LMC_CUDA(driver, cuStreamSynchronize(stream.get()), "copy to the GPU and back");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return ordered_json{{"bytes", kCopiedBytes},
                      {"seconds", seconds.count()},
                      {"ok", std::memcmp(source.get(), target.get(), kCopiedBytes) == 0}};
}

Result<ordered_json> describe(const Gpu &gpu, int index) {
  LMC_LET(free, gpu.freeBytes());
  return ordered_json{{"index", index},
                      {"name", gpu.name},
                      {"uuid", gpu.uuid},
                      {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                      {"multiprocessors", gpu.multiprocessors},
                      {"memory_bytes", gpu.memoryBytes},
                      {"free_bytes", *free}};
}

} // namespace

ordered_json describeGpus() {
  ordered_json found = {{"devices", ordered_json::array()},
                        {"libraries", ordered_json::object()},
                        {"problems", ordered_json::array()}};
  auto problem = [&](const Error &error) { found["problems"].push_back(error.message); };
  auto library = [&](const char *name, const Result<LibraryFile> &opened) {
    found["libraries"][name] =
        opened ? ordered_json{{"version", opened->version}, {"file", opened->path}}
               : ordered_json{{"error", opened.error().message}};
  };
  library("nccl", findNccl());
  auto driver = openDriver();
  if (!driver) {
    problem(driver.error());
    return found;
  }
  found["cuda_driver"] =
      fmt::format("{}.{}", (*driver)->version / 1000, (*driver)->version % 1000 / 10);
  int count = 0;
  if (auto counted = (*driver)->check((*driver)->cuDeviceGetCount(&count), "count the GPUs");
      !counted)
    problem(counted.error());
  for (int index = 0; index < count; ++index) {
    auto gpu = Gpu::open(**driver, index);
    if (!gpu) {
      problem(gpu.error());
      continue;
    }
    auto facts = describe(*gpu, index);
    if (!facts) {
      problem(facts.error());
      continue;
    }
    auto copied = copyThereAndBack(**driver);
    if (copied)
      (*facts)["memory"] = *copied;
    if (!copied)
      problem(copied.error());
    else if (!copied->at("ok").get<bool>())
      problem(
          {fmt::format("GPU {} ({}) does not give back what was copied to it", index, gpu->name)});
    found["devices"].push_back(*facts);
    if (found["libraries"].contains("cublaslt"))
      continue;
    auto products = Products::open(**driver, *gpu);
    if (!products)
      problem(products.error());
    library("cublaslt", products ? Result<LibraryFile>((*products)->libraryFile())
                                 : Result<LibraryFile>(products.error()));
  }
  return found;
}

} // namespace lmc
