#include "test/hostdriver/Modules.h"
#include "test/hostdriver/Devices.h"
#include "test/hostdriver/Driver.h"

#include <cstring>

namespace lmc::hostdriver {

static const plan::Kernel &kernelOf(uint32_t kernel) {
  return *driver().plan.file()->kernels()->Get(kernel);
}

// Returns true if this device runs code for `target`, such as "cuda:sm_90a". Code for "sm_90a" runs
// on compute capability 9.0 only, and code for "sm_80" on 8.x.
static bool runs(const std::string &target) {
  const size_t digits = target.find("sm_") + 3;
  const int built = std::atoi(target.c_str() + digits), here = hostility().arch;
  const bool exact = target.back() == 'a';
  return exact ? here == built : here / 10 == built / 10 && here >= built;
}

CUmodule Modules::load(const void *image) {
  if (!image)
    refuse(CUDA_ERROR_INVALID_VALUE);
  const PlanFile *const before = &driver().plan.file();
  const int number = driver().plan.findModule(image);
  if (&driver().plan.file() != before) // another phase, with kernels of its own
    kernels.clear();
  if (number < 0)
    broken(CUDA_ERROR_INVALID_IMAGE, "the image is no module of {}", driver().plan.file().path());
  const auto *module = driver().plan.file()->modules()->Get(uint32_t(number));
  if (!runs(module->target()->str()))
    refuse(CUDA_ERROR_NO_BINARY_FOR_GPU);
  driver().memory.takeForLibrary();
  return modules.add(std::make_unique<CUmod_st>(CUmod_st{number, {}}));
}

void Modules::unload(CUmodule module) {
  driver().graphs.checkModuleUnused(&modules.check(module));
  modules.remove(module);
  driver().memory.giveBack();
}

CUfunction Modules::function(CUmodule module, const char *entry) {
  CUmod_st &owner = modules.check(module);
  const int kernel = driver().plan.findKernel(owner.number, entry);
  if (kernel < 0)
    refuse(CUDA_ERROR_NOT_FOUND);
  for (const auto &function : owner.functions)
    if (function->kernel == uint32_t(kernel))
      return function.get();
  owner.functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{module, uint32_t(kernel)}));
  return owner.functions.back().get();
}

CUfunc_st &Modules::check(CUfunction function) {
  for (const auto &module : modules)
    for (const auto &known : module->functions)
      if (known.get() == function)
        return *function;
  refuse(CUDA_ERROR_INVALID_HANDLE);
}

int Modules::attribute(const CUfunc_st &function, CUfunction_attribute which) const {
  const plan::Kernel &kernel = kernelOf(function.kernel);
  switch (which) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    return int(kernel.threads());
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    return 0;
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    return int(kernel.stack_bytes());
  case CU_FUNC_ATTRIBUTE_NUM_REGS:
    return int(kernel.registers()) + hostility().extraRegisters;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION:
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    return hostility().arch;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    return function.dynamicShared;
  case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    return function.carveout;
  default:
    broken(CUDA_ERROR_INVALID_VALUE, "function attribute {} is not modelled", int(which));
  }
}

void Modules::setAttribute(CUfunc_st &function, CUfunction_attribute which, int value) {
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
      value <= deviceLimits().sharedPerBlock)
    function.dynamicShared = value;
  else if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 &&
           value <= 100)
    function.carveout = value;
  else
    broken(CUDA_ERROR_INVALID_VALUE, "function attribute {} is set to {}", int(which), value);
}

// As NVIDIA's cuda_occupancy.h computes it. Registers are given to warps in units of 256, to a
// quarter of the multiprocessor each; shared memory to blocks in units of 128 bytes, of which the
// system takes 1 KiB per block. This repeats what lmc computes for plans, as an oracle for it.
int Modules::blocksPerMultiprocessor(const CUfunc_st &function, int threads,
                                     size_t dynamicShared) const {
  const DeviceLimits limits = deviceLimits();
  if (threads <= 0 || threads > 1024)
    refuse(CUDA_ERROR_INVALID_VALUE);
  auto roundUp = [](uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; };
  const int warps = (threads + 31) / 32;
  const uint64_t registers =
      roundUp(uint64_t(std::max(1, attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS))) * 32, 256);
  const int byRegisters = int(limits.registers / 4 / registers * 4) / warps;
  const int byShared = int(uint64_t(limits.sharedPerSm) / roundUp(dynamicShared + 1024, 128));
  return std::min({limits.threadsPerSm / 32 / warps, limits.blocksPerSm, byRegisters, byShared});
}

void Modules::execute(uint32_t kernel, const Grid &grid,
                      const std::vector<simt::Argument> &arguments) {
  if (kernels.empty()) {
    std::vector<simt::Source> sources;
    for (const auto *each : *driver().plan.file()->kernels())
      sources.push_back({each->entry()->str(),
                         each->source()->str(),
                         {1, 1, 1},
                         each->threads(),
                         each->shared_bytes()});
    for (Result<simt::Kernel> &compiled : simt::compile(sources)) {
      if (!compiled)
        broken(CUDA_ERROR_LAUNCH_FAILED, "{}", compiled.error().message);
      kernels.push_back(std::move(*compiled));
    }
  }
  kernels[kernel].launch.grid = grid.blocks;
  const simt::RunResult run = simt::run(kernels[kernel], arguments,
                                        simt::Order::of(hostility().seed * 1000003 + launched++));
  if (!run.failure.empty())
    broken(CUDA_ERROR_LAUNCH_FAILED, "{}", run.failure);
}

// The limits of every device since compute capability 3.0, and those of the function.
void Modules::checkLimits(const CUfunc_st &function, const Grid &grid) const {
  constexpr std::array<uint32_t, 3> kMostBlocks = {0x7fffffff, 65535, 65535},
                                    kMostThreads = {1024, 1024, 64};
  const std::string name = kernelOf(function.kernel).entry()->str();
  for (size_t i = 0; i < 3; ++i)
    if (grid.blocks[i] == 0 || grid.blocks[i] > kMostBlocks[i] || grid.threads[i] == 0 ||
        grid.threads[i] > kMostThreads[i])
      broken(
          CUDA_ERROR_INVALID_VALUE,
          "'{}' is launched with {} x {} x {} blocks of {} x {} x {} threads, which no device has",
          name, grid.blocks[0], grid.blocks[1], grid.blocks[2], grid.threads[0], grid.threads[1],
          grid.threads[2]);
  const uint64_t threads = uint64_t(grid.threads[0]) * grid.threads[1] * grid.threads[2];
  if (threads > uint64_t(attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)))
    broken(CUDA_ERROR_INVALID_VALUE, "a block of '{}' has {} threads, and its code allows {}", name,
           threads, attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (grid.sharedBytes > uint32_t(function.dynamicShared))
    broken(CUDA_ERROR_INVALID_VALUE,
           "'{}' is launched with {} bytes of shared memory, and was allowed {}", name,
           grid.sharedBytes, function.dynamicShared);
  if (blocksPerMultiprocessor(function, int(threads), grid.sharedBytes) == 0)
    broken(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "a block of '{}' does not fit on a multiprocessor",
           name);
}

WorkPtr Modules::launch(CUfunc_st &function, const Grid &grid, void **parameters) {
  const uint32_t number = function.kernel;
  const plan::Kernel &kernel = kernelOf(number);
  checkLimits(function, grid);
  // The driver may wait for the context before it loads code, and a rank that waits does not take
  // part in the next collective.
  if (!function.loaded && driver().streams.hasCollective())
    broken(kRuleBroken, "the code of '{}' is loaded by its launch while a collective runs",
           kernel.entry()->str());
  function.loaded = true;
  if (!parameters)
    broken(CUDA_ERROR_INVALID_VALUE, "'{}' is launched without parameters", kernel.entry()->str());
  std::vector<uint64_t> pointers(driver().plan.argumentsOf(number));
  for (size_t i = 0; i < pointers.size(); ++i)
    std::memcpy(&pointers[i], parameters[i], sizeof(uint64_t));
  const LaunchMatch match = driver().plan.findLaunch(number, pointers);
  std::array<uint32_t, 3> blocks = grid.blocks;
  if (match.variable) // the values do not depend on how many blocks compute them
    blocks[0] = kernel.grid()->Get(0);
  for (uint32_t i = 0; i < 3; ++i)
    if (blocks[i] != kernel.grid()->Get(i) || grid.threads[i] != (i ? 1 : kernel.threads()))
      broken(kRuleBroken,
             "{} is launched with {} x {} x {} blocks of {} x {} x {} threads, and the plan has {} "
             "x {} x {} of {}",
             match.name, grid.blocks[0], grid.blocks[1], grid.blocks[2], grid.threads[0],
             grid.threads[1], grid.threads[2], kernel.grid()->Get(0), kernel.grid()->Get(1),
             kernel.grid()->Get(2), kernel.threads());
  if (grid.sharedBytes != kernel.shared_bytes())
    broken(kRuleBroken, "{} is launched with {} bytes of shared memory, and the plan has {}",
           match.name, grid.sharedBytes, kernel.shared_bytes());
  auto work = std::make_shared<Work>();
  work->name = std::make_shared<const std::string>("launch of " + match.name);
  work->accesses = match.bytes;
  work->module = function.module;
  std::vector<simt::Argument> arguments;
  for (size_t i = 0; i < pointers.size(); ++i) {
    const Access &bytes = match.bytes[i];
    driver().memory.require(bytes, false, *work->name);
    arguments.push_back({Memory::host(bytes.begin), bytes.run * bytes.rows, match.access[i],
                         bytes.rows, bytes.pitch});
    work->microseconds += double(bytes.run * bytes.rows) / 3e6; // 3 TB/s
  }
  if (kernel.entry()->str() == hostility().slowKernel)
    work->microseconds *= 1000;
  work->execute = [this, number, grid, arguments, match, entry = kernel.entry()->str()] {
    if (hostility().noKernels)
      return;
    if (!match.variable) {
      execute(number, grid, arguments);
      constexpr uint16_t kThree = 0x4040;
      if (entry == hostility().wrongKernel)
        std::memcpy(static_cast<char *>(arguments.back().data) + arguments.back().bytes -
                        sizeof kThree,
                    &kThree, sizeof kThree);
      return;
    }
    std::vector<simt::Argument> some = arguments;
    const uint64_t elements =
        driver().plan.checkRecord(*match.variable, some[0].data, match.bytes.back().begin);
    for (size_t i = 1; i < some.size(); ++i) // the record says how much of the rest is computed
      some[i].bytes = elements * match.elementBytes[i];
    execute(number, {{1 + uint32_t(launched % 3), 1, 1}, grid.threads, grid.sharedBytes}, some);
  };
  return work;
}

} // namespace lmc::hostdriver
