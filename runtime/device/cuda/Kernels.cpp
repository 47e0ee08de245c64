#include "runtime/device/cuda/Kernels.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

namespace lmc::cuda {

Result<void> Kernels::load(const Driver &driver, const PlanFile &file) {
  for (const auto *module : *file->modules()) {
    if (module->image()->size() == 0)
      return userError("{}: the plan's kernels have no code; compile it again", file.path());
    // The code is copied, because it must be aligned to 8 bytes, which a plan does not ensure.
    std::vector<uint64_t> image((module->image()->size() + 7) / 8);
    std::memcpy(image.data(), module->image()->data(), module->image()->size());
    CUmodule loaded = nullptr;
    const CUresult result = driver.cuModuleLoadDataEx(&loaded, image.data(), 0, nullptr, nullptr);
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE ||
        result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
      return userError("{}: code for {} does not load: {}; the driver supports CUDA {}.{}, and the "
                       "plan may come from a newer one",
                       file.path(), module->target()->str(), driver.text(result),
                       driver.version / 1000, driver.version % 1000 / 10);
    LMC_TRY(driver.check(result, fmt::format("load the code of {}", file.path())));
    modules.emplace_back(driver, loaded);
  }
  for (const auto *planned : *file->kernels()) {
    Kernel kernel;
    kernel.name = planned->name()->str();
    LMC_CUDA(driver,
             cuModuleGetFunction(&kernel.function, modules[planned->module_()].get(),
                                 planned->entry()->c_str()),
             fmt::format("find kernel '{}' in the code of {}", planned->entry()->str(),
                         file.path()));
    const auto &image = *file->modules()->Get(planned->module_())->image();
    kernel.code = XXH64(image.data(), image.size(), 0);
    if (!planned->grid())
      return userError("{}: kernel '{}' has no grid", file.path(), kernel.name);
    for (uint32_t i = 0; i < 3; ++i)
      kernel.grid[i] = planned->grid()->Get(i);
    kernel.threads = planned->threads();
    kernel.sharedBytes = planned->shared_bytes();
    // Without this call, the first launch would load the code, and might wait for a collective.
    LMC_CUDA(driver, cuFuncLoad(kernel.function), fmt::format("load kernel '{}'", kernel.name));
    LMC_TRY(check(driver, *planned, kernel));
    kernels.push_back(std::move(kernel));
  }
  return {};
}

Result<void> Kernels::check(const Driver &driver, const plan::Kernel &planned,
                            const Kernel &kernel) {
  const std::string reading = fmt::format("read the properties of kernel '{}'", kernel.name);
  int registers = 0, local = 0, fixedShared = 0, threads = 0;
  const std::pair<CUfunction_attribute, int *> attributes[] = {
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &registers},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &fixedShared},
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads}};
  for (auto [attribute, value] : attributes)
    LMC_CUDA(driver, cuFuncGetAttribute(value, attribute, kernel.function), reading);
  if (kernel.threads > uint32_t(threads))
    return machineError(
        "kernel '{}' cannot run: the plan launches blocks of {} threads, and the driver allows {}",
        kernel.name, kernel.threads, threads);
  if (kernel.sharedBytes > 0) {
    LMC_CUDA(driver,
             cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                int(kernel.sharedBytes)),
             fmt::format("give kernel '{}' its {} bytes of shared memory", kernel.name,
                         kernel.sharedBytes));
    // Shared memory and the first-level cache share one memory. Shared memory gets all of it.
    LMC_CUDA(driver,
             cuFuncSetAttribute(kernel.function,
                                CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
             fmt::format("divide the shared memory for kernel '{}'", kernel.name));
  }
  int blocks = 0;
  LMC_CUDA(driver,
           cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function,
                                                       int(kernel.threads), kernel.sharedBytes),
           reading);
  if (blocks == 0)
    return machineError(
        "kernel '{}' cannot run: a block of {} threads with {} registers each and {} "
        "bytes of shared memory does not fit on a multiprocessor",
        kernel.name, kernel.threads, registers, kernel.sharedBytes + uint32_t(fixedShared));
  auto compare = [&](const char *what, uint64_t plannedValue, int reported) {
    if (plannedValue != uint64_t(reported))
      found.push_back(fmt::format("kernel '{}': the plan says {} {}, the driver {}", kernel.name,
                                  plannedValue, what, reported));
  };
  compare("registers", planned.registers(), registers);
  // A plan gives kernels only dynamic shared memory, so the fixed part must be 0 bytes.
  compare("bytes of fixed shared memory", 0, fixedShared);
  compare("bytes of local memory", planned.stack_bytes(), local);
  if (planned.blocks_per_sm() > 0)
    compare("thread blocks per multiprocessor", planned.blocks_per_sm(), blocks);
  return {};
}

Result<void> Kernels::launch(const Driver &driver, const Kernel &kernel,
                             const std::vector<CUdeviceptr> &arguments, CUstream stream) {
  std::vector<void *> pointers;
  for (const CUdeviceptr &argument : arguments)
    pointers.push_back(const_cast<CUdeviceptr *>(&argument));
  LMC_CUDA(driver,
           cuLaunchKernel(kernel.function, kernel.grid[0], kernel.grid[1], kernel.grid[2],
                          kernel.threads, 1, 1, kernel.sharedBytes, stream, pointers.data(),
                          nullptr),
           fmt::format("launch kernel '{}'", kernel.name));
  return {};
}

} // namespace lmc::cuda
