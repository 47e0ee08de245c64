// The kernels of a plan on a GPU: their modules, loaded and compared with the plan's description.
#pragma once

#include "runtime/device/cuda/Gpu.h"

#include <array>
#include <string>
#include <vector>

namespace lmc::cuda {

struct Kernel {
  CUfunction function = nullptr;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  uint32_t threads = 0, sharedBytes = 0;
  std::string name;
  uint64_t code = 0; // XXH64 of its module's code
};

class Kernels {
public:
  // Loads every module of the plan. Errors: a module has no code, or does not load, or a kernel
  // cannot be launched with the threads and shared memory that the plan says. The GPU must be
  // current.
  Result<void> load(const Driver &driver, const PlanFile &file);

  // Returns the kernels of the plan, in its order.
  const std::vector<Kernel> &all() const { return kernels; }
  // Returns differences between the plan and the driver in a kernel's registers, local memory and
  // thread blocks per multiprocessor, one line each.
  const std::vector<std::string> &differences() const { return found; }

  // Enqueues a launch. `arguments` are addresses of device memory.
  static Result<void> launch(const Driver &driver, const Kernel &kernel,
                             const std::vector<CUdeviceptr> &arguments, CUstream stream);

private:
  Result<void> check(const Driver &driver, const plan::Kernel &planned, const Kernel &kernel);

  std::vector<Module> modules;
  std::vector<Kernel> kernels;
  std::vector<std::string> found;
};

} // namespace lmc::cuda
