#include "compiler/targets/cuda/CudaCode.h"
#include "compiler/targets/cuda/DeviceLibrary.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/ThreadPool.h"

#include <cstring>

using llvm::Expected;

namespace lmc::codegen {

namespace {
struct Unit {
  const CudaKernel *kernel;
  std::string key; // the key in KernelCache
  Cubin cubin;
  std::string complaint; // the error message; "" when the kernel has code
};
} // namespace

std::string cubinKey(const CudaKernel &kernel, llvm::StringRef arch, llvm::StringRef nvrtc) {
  // Change the version in `parts` if writeCubin() changes, or if code depends on more than `parts`.
  llvm::SmallVector<llvm::StringRef> parts = {"cubin 1", nvrtc, arch, kernel.name, kernel.source};
  for (const char *option : Nvrtc::options(kernel))
    parts.push_back(option);
  for (const DeviceHeader &header : deviceHeaders())
    parts.append({header.name, header.text});
  return KernelCache::key(parts);
}

std::string writeCubin(const Cubin &cubin) {
  std::string entry(sizeof(KernelResources), 0);
  std::memcpy(entry.data(), &cubin.resources, sizeof(KernelResources));
  return entry.append(cubin.image.begin(), cubin.image.end());
}

std::optional<Cubin> readCubin(llvm::StringRef entry) {
  if (entry.size() < sizeof(KernelResources))
    return std::nullopt;
  Cubin cubin;
  std::memcpy(&cubin.resources, entry.data(), sizeof(KernelResources));
  cubin.image.assign(entry.begin() + sizeof(KernelResources), entry.end());
  return cubin;
}

static void fill(Unit &unit, const Nvrtc &nvrtc, llvm::StringRef arch, const KernelCache &cache) {
  if (std::optional<std::string> entry = cache.find(unit.key))
    if (std::optional<Cubin> known = readCubin(*entry)) {
      unit.cubin = std::move(*known);
      return;
    }
  Expected<Cubin> made = nvrtc.compile(*unit.kernel, arch);
  if (!made) {
    unit.complaint = llvm::toString(made.takeError());
    return;
  }
  cache.keep(unit.key, writeCubin(*made));
  unit.cubin = std::move(*made);
}

Expected<std::vector<CudaCode>> compileCuda(std::vector<CudaKernel> kernels, llvm::StringRef arch,
                                            const KernelCache &cache) {
  Expected<const Nvrtc *> nvrtc = Nvrtc::get();
  if (!nvrtc)
    return nvrtc.takeError();
  std::vector<Unit> units;
  std::vector<size_t> unitOf; // per kernel, an index into `units`; equal kernels share a unit
  llvm::StringMap<size_t> known;
  for (const CudaKernel &kernel : kernels) {
    std::string key = cubinKey(kernel, arch, (*nvrtc)->version());
    auto [it, isNew] = known.try_emplace(key, units.size());
    if (isNew)
      units.push_back({&kernel, std::move(key), {}, {}});
    unitOf.push_back(it->second);
  }
  {
    // Parallel compiles gain little, because NVRTC's front end holds a lock. With CUDA 13.0, two
    // threads need about 0.75 times as long as one thread.
    llvm::DefaultThreadPool pool(llvm::hardware_concurrency());
    for (Unit &unit : units)
      pool.async([&] { fill(unit, **nvrtc, arch, cache); });
  }
  for (const Unit &unit : units)
    if (!unit.complaint.empty())
      return llvm::createStringError(unit.complaint);
  std::vector<CudaCode> code;
  for (auto [kernel, unit] : llvm::zip(kernels, unitOf))
    code.push_back({std::move(kernel), units[unit].cubin});
  return code;
}

} // namespace lmc::codegen
