#include "compiler/targets/cuda/CudaCode.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/ThreadPool.h"

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

static void fill(Unit &unit, const Nvrtc &nvrtc, llvm::StringRef arch, const KernelCache &cache) {
  if (std::optional<Cubin> known = cache.find(unit.key)) {
    unit.cubin = std::move(*known);
    return;
  }
  Expected<Cubin> made = nvrtc.compile(*unit.kernel, arch);
  if (!made) {
    unit.complaint = llvm::toString(made.takeError());
    return;
  }
  cache.keep(unit.key, *made);
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
    std::string key = KernelCache::key(kernel, arch, (*nvrtc)->version());
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
